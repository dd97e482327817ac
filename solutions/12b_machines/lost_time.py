"""Where the time of a run has gone that was killed again and again, by its log."""

from itertools import pairwise
from random import Random

from tinydist.lab.author import Own, Varied, alone, exercise, mistake


def run(seed, every, kills, steps=24):
    """A log of (seconds, what, step): "start", "step", "kill", "end"."""
    draw = Random(seed)
    at, reached, saved = 100.0 * seed, 0, 0
    log = [(at, "start", None)]

    def wait(least, most):
        nonlocal at
        at = round(at + draw.uniform(least, most), 3)

    def lost():
        wait(0.1, 1.5)
        log.append((at, "kill", None))
        while draw.random() < 0.25:  # another, while they meet
            wait(1, 20)
            log.append((at, "kill", None))
        wait(2, 40)
        log.append((at, "start", None))

    loading = True
    while reached < steps:
        if kills and draw.random() < 0.15:
            kills -= 1
            lost()
            reached, loading = saved, True
            continue
        wait(*(5, 20) if loading else (1.8, 2.2))
        loading = False
        log.append((at, "step", reached))
        reached += 1
        if reached % every == 0 and draw.random() < 0.8:  # or this save is cut by what comes
            saved = reached
    wait(0.1, 0.2)
    return [*log, (at, "end", None)]


def test_cases():
    yield alone(lambda: (run(0, 4, 0),), "a run without a kill")
    for seed in range(1, 16):
        every, kills = (1, 3, 6)[seed % 3], 1 + seed % 4
        yield alone(
            lambda seed=seed, every=every, kills=kills: (run(seed, every, kills),),
            f"a run with a checkpoint every {every} steps and up to {kills} kills, number {seed}",
        )


LOADS, KILLED = 'elif before == "start":', 'now == "kill" or (now == "step" and step <= furthest)'
AGAIN = f"elif {KILLED}:"


@exercise(
    title="Where the time has gone",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own reading", "read the log yourself", ("tinydist.diagnose", "tinydist.planner")),
        Varied(
            "16 logs of 24 steps, with kills in a step, in a load and in a meeting",
            ["seconds of meeting", "seconds of loading", "seconds of steps again", "the effective part"],
            whole=True,
            variants=[
                ("This is the part that is lost: the effective part is the rest", "1 - (meeting", "(meeting"),
                (
                    "The whole time is from the first line to the last: a log need not begin at 0",
                    "log[-1][0] - log[0][0]",
                    "log[-1][0]",
                ),
                (
                    "Of the effective part only steps again are taken off: meeting and loading are lost, too",
                    "(meeting + loading + again)",
                    "again",
                ),
                (
                    "Of the effective part loading is not taken off: it is lost, too",
                    "(meeting + loading + again)",
                    "(meeting + again)",
                ),
                (
                    "Of the effective part meeting is not taken off: it is lost, too",
                    "(meeting + loading + again)",
                    "(loading + again)",
                ),
                (
                    "Of the effective part steps again are not taken off: they are lost, too",
                    "(meeting + loading + again)",
                    "(meeting + loading)",
                ),
                (
                    "What is loading is no step again, too: its stretch counts once",
                    AGAIN,
                    AGAIN.replace("elif", "if", 1),
                ),
                (
                    "There is no loading: the stretch from a start to its first step is that, and no step",
                    LOADS,
                    "elif False:",
                ),
                (
                    "The stretch from a start to its first step is loading, and not meeting",
                    "loading += seconds",
                    "meeting += seconds",
                ),
                (
                    "Meeting begins with the first kill: where another comes while they meet, this is from the last",
                    'if before == "kill":\n            meeting += seconds',
                    'if before == "kill":\n            meeting += seconds * (now == "start")',
                ),
                (
                    "The stretch from a start to its first step is loading, and no step again, whatever that step is",
                    LOADS + "\n            loading += seconds",
                    LOADS + '\n            loading += seconds\n            again += seconds * (now == "step" and step '
                    "<= furthest)",
                ),
                (
                    "A load that is killed is no step again: it is loading alone",
                    LOADS + "\n            loading += seconds",
                    LOADS + '\n            loading, again = loading + seconds, again + seconds * (now == "kill")',
                ),
                (
                    "The step in which a kill comes is lost as `again`: it is counted as meeting here",
                    AGAIN,
                    'elif now == "kill":\n            meeting += seconds\n        ' + AGAIN,
                ),
                (
                    "They meet until they start: the load that follows is no meeting",
                    "loading += seconds",
                    "loading, meeting = loading + seconds, meeting + seconds",
                ),
                (
                    "Meeting goes until the next start, and each kill begins one: a stretch that ends with a kill "
                    "counts once",
                    'if before == "kill":',
                    'if before == "kill" or now == "kill":',
                ),
                (
                    "A step that begins at the one that was furthest is new: what was done before ends there",
                    "step <= furthest",
                    "step <= furthest + 1",
                ),
                (
                    "The step that was done last before the kill is done again, too, if it comes again",
                    "step <= furthest",
                    "step < furthest",
                ),
                (
                    "The first start of the run loads as well, and its seconds are lost",
                    LOADS,
                    'elif before == "start" and begin > log[0][0]:',
                ),
                (
                    "The stretch to the last line is no step: it is lost by none of the three",
                    KILLED,
                    'now in ("kill", "end") or (now == "step" and step <= furthest)',
                ),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "A kill in the middle of a step takes the beginning of that step with it: it is done again",
            'now == "kill" or (now == "step" and step <= furthest)',
            'now == "step" and step <= furthest',
        ),
        mistake(
            "A step that is done a third time is done again, too: compare with the furthest step that was ever done, "
            "and not with the last one before this kill",
            "furthest = max(furthest, step)",
            "furthest = step",
        ),
        mistake(
            "A second kill while they meet begins no new meeting: the seconds before it are seconds of meeting, too",
            'if before == "kill":',
            'if before == "kill" and now == "start":',
        ),
        mistake(
            "A start that is killed before its first step has loaded in vain: those seconds are of loading",
            'elif before == "start":',
            'elif before == "start" and now == "step":',
        ),
        mistake(
            "Each start loads, also the first of the run",
            "loading += seconds",
            "loading += seconds * (furthest >= 0)",
        ),
        mistake(
            "The effective part is that of the whole time, to its last line, in which a step was new",
            "log[-1][0] - log[0][0]",
            "log[-1][0] - log[0][0] - meeting",
        ),
    ],
    hints=[
        "Go through the log line by line. Each stretch between two lines belongs to one of four: meeting, loading, "
        "steps again, steps that are new.",
        "What a stretch is follows from the line before it and the line after it: after a kill they meet, and after a "
        "start they load.",
        "Between two steps, ask whether the second one had been done before, at any time of the run.",
    ],
    why="Clusters are judged by this last number: Llama 3 reports more than 90 %. Which of the other three is largest "
    "decides what helps: a faster restart, faster loading, or a checkpoint more often.",
)
def lost_time(log):
    """Say where the time of a run has gone: return (meeting, loading, again, effective).

    ``log`` has a line for each event, (seconds, what, step). "start": the processes are there, and load. "step": this
    step is over, and the next one begins at once. "kill": all stop, and meet until the next "start". "end" is the last.

    meeting: seconds after a kill, until they start. loading: seconds after each start, until its first step is over or
    a kill comes. again: seconds of steps that had been done before, and of a step in which a kill came; without what
    is loading. effective: of the whole time, the part that is none of these three.
    """
    meeting = loading = again = 0.0
    # ? To which of the three does each stretch between two lines belong?
    furthest = -1
    for (begin, before, _), (end, now, step) in pairwise(log):
        seconds = end - begin
        if before == "kill":
            meeting += seconds
        elif before == "start":
            loading += seconds
        elif now == "kill" or (now == "step" and step <= furthest):
            again += seconds
        if now == "step":
            furthest = max(furthest, step)
    whole = log[-1][0] - log[0][0]
    return meeting, loading, again, 1 - (meeting + loading + again) / whole
    # .
