"""A memory snapshot's list of events: the peak, and whose bytes it was."""

import random

from tinydist.lab.author import Values, Wrong, alone, exercise, mistake

TORCH = ("torch/nn/functional.py", "torch/_tensor.py")


def event(action, addr, size, *files):
    return {"action": action, "addr": addr, "size": size, "frames": [{"filename": each, "line": 7} for each in files]}


def alloc(addr, size, *files):
    return event("alloc", addr, size, *files)


def free(addr, size):
    """At once, as where one stream has used the memory."""
    return [event("free_requested", addr, size, "train.py"), event("free_completed", addr, size, "train.py")]


def of(events, about):
    return alone(lambda: ([dict(each) for each in events],), about)


def recorded(seed, steps=40):
    """A program whose oldest events are forgotten, and whose addresses are used again and again."""
    draw = random.Random(seed)
    events, alive, waiting = [], {}, []
    for _ in range(steps):
        addr = draw.choice([each for each in range(12) if each not in alive and each not in waiting])
        alive[addr] = draw.choice((100, 200, 300, 500))
        own = draw.choice(["model.py", "torch_loss.py", "lib/torch/adam.py"])
        inside = draw.sample(TORCH, draw.randrange(3))
        events.append(alloc(addr, alive[addr], *inside, own, *["train.py"] * (own != "train.py")))
        if draw.random() < 0.2:
            events.append(event("segment_alloc", addr + 100, 2000))
        if waiting and draw.random() < 0.5:
            gone = waiting.pop(0)
            events.append(event("free_completed", gone, alive.pop(gone), "train.py"))
        while len(alive) > draw.randrange(3, 8):
            gone = draw.choice(list(alive))
            if gone in waiting:
                break
            if draw.random() < 0.3:
                events.append(event("free_requested", gone, alive[gone], "train.py"))
                waiting.append(gone)
            else:
                events += free(gone, alive.pop(gone))
    return events


def test_cases():
    step = [alloc(1, 400, "model.py", "train.py"), alloc(2, 300, TORCH[0], "loss.py", "train.py")]
    yield of([*step, *free(2, 300), alloc(3, 100, "adam.py", "train.py"), *free(1, 400)], "a step")
    yield of([*free(8, 500), *step], "a list that begins in the middle, with 500 bytes that it only frees")
    yield of([*free(8, 900), alloc(8, 100, "model.py"), *free(8, 100), *step], "an address that is used again")
    late = [event("free_requested", 1, 400, "train.py"), alloc(4, 250, "loss.py", "train.py")]
    yield of([step[0], *late, event("free_completed", 1, 400, "train.py")], "a free that waits for another stream")
    gone = event("free_completed", 8, 700, "train.py")  # and requested before the list began
    yield of([gone, step[0], *late], "a list that begins at its peak")
    other = [*free(1, 400), alloc(5, 400, "adam.py", "train.py")]
    yield of([step[0], event("segment_alloc", 90, 2048), *other], "a segment, and two peaks of one size")
    yield of([alloc(1, 10, TORCH[1]), alloc(2, 20, *TORCH)], "what nobody but torch has asked for")
    names = [alloc(1, 10, TORCH[1], "my_torch.py"), alloc(2, 20, "lib/torch/loss.py"), alloc(3, 40, *TORCH)]
    yield of(names, "files whose names have torch in them, and do not begin with torch/")
    alike = [alloc(1, 200, "model.py"), alloc(2, 200, "loss.py"), *free(1, 200), alloc(3, 300, "adam.py")]
    yield of(alike, "two owners of as many bytes, of which the first is freed")
    yield of([], "an empty list")
    for seed in (1, 2):
        yield of(recorded(seed)[30:], "a ring that has forgotten its oldest events")


def program(answer, events):
    found = answer(events)
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
        raise Wrong(f"it should return the bytes and a dict of owners, and returns {found!r}")
    peak, owners = found
    return peak, ", ".join(f"{owners[name]:,} of {name}" for name in sorted(owners))


@exercise(
    title="Whose bytes are the peak?",
    minutes=10,
    difficulty=2,
    test_cases=test_cases,
    program=program,
    targets=[Values("the peak, and the bytes of each owner then, of twelve lists", names=("the peak", "the owners"))],
    mistakes=[
        mistake(
            "What the list frees and has not allocated was there before it began: count it from the beginning",
            "alive[addr] = OLDER, size",
            "pass",
        ),
        mistake(
            "A free that is requested still holds its memory: another stream may be reading it. It is gone when the "
            "free is completed",
            '("alloc", "free_completed")',
            '("alloc", "free_requested")',
        ),
        mistake(
            "A segment is what the allocator took from CUDA, to cut allocations from it: counted with them, bytes "
            "count twice",
            '("alloc", "free_completed")',
            '("alloc", "free_completed", "segment_alloc")',
            'event["action"] == "alloc":\n            alive',
            'event["action"] != "free_completed":\n            alive',
        ),
        mistake(
            "The innermost frame is often torch's own: the owner is the first frame that is not",
            'not file.startswith("torch/")',
            "True",
        ),
        mistake(
            "The outermost frame is the script that calls everything: the owner is the first one outside of torch, "
            "from within",
            "for file in files:",
            "for file in reversed(files):",
        ),
        mistake(
            "The peak was over: these are the owners at the end of the list. Keep what is alive at the moment of the "
            "peak",
            "in at_peak.values():",
            "in alive.values():",
        ),
        mistake(
            "The peak may be where the list begins: what is older is held before the first event, too",
            "peak = held = sum(size for _, size in alive.values())\n    at_peak = dict(alive)",
            "held = sum(size for _, size in alive.values())\n    peak, at_peak = 0, {}",
        ),
        mistake("Of several moments with as many bytes the first is asked for", "held > peak", "held >= peak"),
    ],
    hints=[
        "Go through the list twice: once to find what was there before it began, and once to add up.",
        "An address is used again and again: remember which of them the list has allocated and not freed yet. A free "
        "of any other address is of something older.",
        "Keep a copy of what is alive whenever the sum is larger than ever before, and add up by owner at the end.",
    ],
    why="On a real GPU the list is a ring and its stacks are deep: who owns the peak is a sum that you have to ask "
    "for. A tool that starts at zero in the middle of a run shows a peak that is too low by all that was there before, "
    "such as the model.",
)
def peak_by_owner(events):
    """Return the peak in bytes, and the bytes of each owner at that moment: (peak, {owner: bytes}).

    ``events`` is a memory snapshot's list, in the order of time. Each event has an "action",
    an "addr", a "size" and "frames", the innermost first, each with a "filename". Memory is
    held from "alloc" until "free_completed" of the same address; other actions allocate
    and free nothing. The list is a ring: what it frees and has not allocated was there
    from its beginning, and its owner is "older". Other owners are the first filename that does
    not begin with "torch/", or "torch", if there is none. Of equal peaks take the first.
    """
    OLDER = "older"

    def owner(event):
        files = [frame["filename"] for frame in event["frames"]]
        for file in files:
            if not file.startswith("torch/"):
                return file
        return "torch"

    alive = {}  # address -> (owner, bytes)
    # ? What was there before the list began? And what is alive when the sum is largest?
    changes = [event for event in events if event["action"] in ("alloc", "free_completed")]
    own = set()
    for event in changes:
        addr, size = event["addr"], event["size"]
        if event["action"] == "alloc":
            own.add(addr)
        elif addr in own:
            own.remove(addr)
        else:
            alive[addr] = OLDER, size

    peak = held = sum(size for _, size in alive.values())
    at_peak = dict(alive)
    for event in changes:
        addr, size = event["addr"], event["size"]
        if event["action"] == "alloc":
            alive[addr] = owner(event), size
            held += size
        else:
            held -= size
            alive.pop(addr, None)
        if held > peak:
            peak, at_peak = held, dict(alive)

    owners = {}
    for name, size in at_peak.values():
        owners[name] = owners.get(name, 0) + size
    return peak, owners
