"""A trace's calls: which rank, and which link, do the others wait for in each step?"""

from random import Random

from tinydist.lab.author import Varied, Wrong, alone, exercise, mistake


def call(link, seconds, issued, waits_from=None):
    """``issued``, ``waits_from``: by rank."""
    return link, seconds, issued, waits_from or issued


def of(steps, about):
    """``steps``: their calls. Times go on from one step to the next."""

    def arguments():
        calls, begin = [], 0
        for step, given in enumerate(steps):
            for number, (link, seconds, issued, waits_from) in enumerate(given):
                end = begin + max(issued) + seconds
                for rank, each in enumerate(issued):
                    times = {"issued": begin + each, "waits_from": begin + waits_from[rank], "end": end}
                    calls.append({"step": step, "number": number, "rank": rank, "link": link, **times})
            begin += 1000
        return (sorted(calls, key=lambda each: (each["rank"], each["issued"])),)

    return alone(arguments, about)


def drawn(seed):
    """Each rank is late in some call, and for each link some ranks wait: seconds add up over ranks and calls."""
    draw, steps = Random(seed), []
    for _ in range(4):
        calls = []
        for at in range(0, 1000, 100):
            issued = [at + draw.choice((0, 1, 2, 20)) + draw.random() for _ in range(3)]
            waits_from = [each + draw.choice((0, 0, 15, 60)) for each in issued]
            calls.append(call(draw.choice(("NVLink", "InfiniBand")), draw.choice((5, 30, 60)), issued, waits_from))
        steps.append(calls)
    return of(steps, f"a trace that was drawn ({seed})")


def test_cases():
    even = call("NVLink", 20, [100, 100, 100])
    yield of([[even]], "a step without a late rank")
    yield of([[call("NVLink", 20, [100, 180, 110])], [even]], "a late rank in the first of two steps")
    both, one = call("NVLink", 20, [100, 130, 100]), call("NVLink", 20, [300, 339, 340])
    yield of([[both, one]], "a rank for which two wait, together longer than a single one waits for another rank")
    calls = [call("NVLink", 30, [at] * 3) for at in (100, 200, 300)]
    yield of([[*calls, call("InfiniBand", 50, [400] * 3)]], "a link in three short calls, and another in a longer one")
    hidden = call("InfiniBand", 300, [100, 100, 100], [500, 500, 500])
    yield of([[hidden, even]], "a long call that is behind computation")
    partly = call("InfiniBand", 300, [100, 100, 100], [350, 390, 370])
    yield of([[call("NVLink", 60, [10, 10, 10]), partly]], "a long call that is behind computation in part")
    early = call("NVLink", 20, [300, 340, 310], [360, 350, 345])
    yield of([[early, call("InfiniBand", 30, [400, 400, 420])]], "a rank that is late, and for which nobody waits")
    busy = call("NVLink", 40, [100, 200, 110], [150, 210, 260])
    yield of([[busy]], "a rank that computes for longest, and another that issues the call last")
    then = [call("NVLink", 40, [100, 180, 110]), call("InfiniBand", 30, [300, 300, 300])]
    yield of([then], "ranks that wait for a rank, and then for the link")
    often = [call("NVLink", 5, [10 + at, 12 + at, 10 + at]) for at in (0, 50, 100)]
    once = call("InfiniBand", 8, [290, 200, 295])
    yield of([[*often, once]], "a rank that is late often, and one that is late once, by more")
    last = [call("NVLink", 10, [100, 90, 160]), call("InfiniBand", 90, [300, 310, 300], [330, 390, 320])]
    yield of([last, [call("NVLink", 30, [100, 40, 90])], last[1:]], "three steps, each of which waits for another")
    alone_there = call("NVLink", 50, [100, 110], [160, 110])
    yield of([[alone_there, call("InfiniBand", 20, [300, 300])]], "a link for which the last rank alone waits")
    yield of([[call("NVLink", 9, [50, 50], [70, 80])]], "two ranks that wait for nothing")
    yield from map(drawn, range(2))


def program(answer, calls):
    found = answer(calls)
    if not isinstance(found, list) or not all(isinstance(each, tuple) and len(each) == 2 for each in found):
        raise Wrong(f"it should return a list of pairs, (rank, link) of each step, and returns {found!r}")
    return [f"rank {rank}, {link}" for rank, link in found]


NOBODY = "Where nobody waits for a rank, or for a link, None stands in its place: waits of no seconds name nobody"


@exercise(
    title="What does each step wait for?",
    minutes=10,
    difficulty=2,
    test_cases=test_cases,
    program=program,
    targets=[
        Varied(
            "the rank and the link of each step, of 15 traces of 2 or 3 ranks",
            variants=[
                (
                    NOBODY,
                    "if rank_waits > 0:",
                    "rank_waits = max(0, rank_waits)\n                if True:",
                    "if link_waits > 0:",
                    "link_waits = max(0, link_waits)\n                if True:",
                ),
                (NOBODY, "if rank_waits > 0:", "rank_waits = max(0, rank_waits)\n                if True:"),
                (NOBODY, "if link_waits > 0:", "link_waits = max(0, link_waits)\n                if True:"),
                (
                    f"{NOBODY}; and what is below 0 counts as nothing",
                    "if rank_waits > 0:",
                    "if True:",
                    "if link_waits > 0:",
                    "if True:",
                ),
                (
                    "A rank that waits less than nothing counts as nothing: it does not make up for what others wait",
                    "if rank_waits > 0:",
                    "if True:",
                ),
                ("A rank that waits less than nothing for a link counts as nothing", "if link_waits > 0:", "if True:"),
                (
                    "The seconds of all ranks and calls are added up, and not the longest wait",
                    'ranks.get(last["rank"], 0) + rank_waits',
                    'max(ranks.get(last["rank"], 0), rank_waits)',
                ),
                (
                    "The seconds of all ranks and calls of a link are added up, and not the longest wait",
                    'links.get(each["link"], 0) + link_waits',
                    'max(links.get(each["link"], 0), link_waits)',
                ),
                (
                    "Each rank's seconds count, and not only those of the call's last rank",
                    "if link_waits > 0:",
                    "if link_waits > 0 and each is last:",
                ),
                (
                    "The last rank does wait for the link, as the others do",
                    "if link_waits > 0:",
                    "if link_waits > 0 and each is not last:",
                ),
                (
                    "How many calls a link has does not tell how long it is waited for: add up seconds",
                    'links.get(each["link"], 0) + link_waits',
                    'links.get(each["link"], 0) + 1',
                ),
                (
                    "A call begins when its last rank has issued it, and not when its first one has",
                    'max(together, key=lambda each: each["issued"])',
                    'min(together, key=lambda each: each["issued"])',
                ),
                (
                    "A call begins when its last rank has issued it, whenever ranks begin to wait",
                    'begin, end = last["issued"], last["end"]',
                    'begin, end = max(each["waits_from"] for each in together), last["end"]',
                ),
                (
                    "These are the ones that are waited for least",
                    "max(ranks, key=ranks.get, default=None), max(links, key=links.get, default=None)",
                    "min(ranks, key=ranks.get, default=None), min(links, key=links.get, default=None)",
                ),
                (
                    "Seconds are added up in each step anew",
                    "ranks, links = {}, {}  # seconds for which they are waited",
                    "ranks, links = (ranks, links) if found else ({}, {})",
                ),
            ],
        )
    ],
    mistakes=[
        mistake(
            "A call that is behind computation is waited for only from where the rank stops computing, its waits_from",
            "link_waits = end - max(begin, since)",
            "link_waits = end - begin",
        ),
        mistake(
            "From its issue on a rank need not wait: it may compute. For the last rank it waits from its waits_from on",
            "rank_waits = begin - since",
            'rank_waits = begin - each["issued"]',
        ),
        mistake(
            "The link is not busy before the last rank has come: until then they wait for that rank",
            "link_waits = end - max(begin, since)",
            "link_waits = end - since",
        ),
        mistake(
            "This is who waits longest. It is asked for whom the others wait: the rank that issues the call last",
            'ranks.get(last["rank"], 0)',
            'ranks.get(each["rank"], 0)',
            'ranks[last["rank"]] =',
            'ranks[each["rank"]] =',
        ),
        mistake(
            "The last rank is the one that issues the call last. A rank that waits last may have issued it long before",
            'key=lambda each: each["issued"]',
            'key=lambda each: each["waits_from"]',
        ),
        mistake(
            "A rank that has waited for the last rank then waits for the link, too: both are counted",
            "if link_waits > 0:",
            "if link_waits > 0 and rank_waits <= 0:",
        ),
        mistake(
            "How often a rank is last does not tell how long the others wait: add up seconds",
            'ranks.get(last["rank"], 0) + rank_waits',
            'ranks.get(last["rank"], 0) + 1',
        ),
        mistake(
            "Numbers of calls begin anew in each step: a call is the one of that step and that number",
            'each["number"] == number and each["step"] == step',
            'each["number"] == number',
        ),
    ],
    hints=[
        "The events of one call have its step and its number in common. When can it begin?",
        "A rank that waits from 100 on, for a call that the last rank issues at 130 and that ends at 150, waits 30 for "
        "that rank and 20 for the link.",
        "A rank that computes until after the end of a call does not wait for it: the difference would be negative, "
        "and counts as nothing.",
    ],
    why="A step that waits for a rank needs another remedy than a step that waits for a link: a faster network does "
    "not help the first, and an even division of work not the second. The bar of a collective in a timeline is as long "
    "in both, so it has to be cut where the last rank comes.",
)
def waited_for(calls):
    """Return a list with (rank, link) for each step: the rank and the link that are waited for longest.

    ``calls`` has an event for each rank and each call: dicts with "step", "number" (of
    the call in its step), "rank", "link", and three times: "issued", when the rank issues the
    call; "waits_from", when it has nothing else to compute and waits; and "end", when the
    call ends. A call begins when its last rank has issued it. Until then ranks that wait do so
    for that rank, and afterwards for the link. Add up the seconds that all ranks wait in a
    step. Where nobody waits for a rank, or for a link, put None in its place.
    """
    found = []
    for step in sorted({each["step"] for each in calls}):
        ranks, links = {}, {}  # seconds for which they are waited
        numbers = {each["number"] for each in calls if each["step"] == step}
        for number in sorted(numbers):
            # ? Who comes last, and when? How long does each rank wait for it, and how long for the link?
            together = [each for each in calls if each["number"] == number and each["step"] == step]
            last = max(together, key=lambda each: each["issued"])
            begin, end = last["issued"], last["end"]
            for each in together:
                since = each["waits_from"]
                rank_waits = begin - since
                link_waits = end - max(begin, since)
                if rank_waits > 0:
                    ranks[last["rank"]] = ranks.get(last["rank"], 0) + rank_waits
                if link_waits > 0:
                    links[each["link"]] = links.get(each["link"], 0) + link_waits
            # .
        found.append((max(ranks, key=ranks.get, default=None), max(links, key=links.get, default=None)))
    return found
