"""A lock is mended: an answer to new requirements that changes as few packages as it can."""

from random import Random

from tinydist.lab.author import Malformed, Target, Wrong, alone, exercise, mistake

from .chapter import BY_HAND

NAMES = ["arrow", "basalt", "cedar", "delta", "ember"]
VERSIONS = [(1, 0), (1, 9), (1, 10), (2, 0)]
ANY = ((0, 0), (99, 0))
TWO = ((2, 0), (3, 0))
ONE = ((1, 0), (2, 0))
PAIR = {
    "arrow": {(1, 0): [("basalt", *ONE)], (2, 0): [("basalt", *TWO)]},
    "basalt": {(1, 0): [], (1, 9): [], (2, 0): []},
}
HELD = {"arrow": (1, 0), "basalt": (1, 0)}
FREE = {name: dict.fromkeys(VERSIONS, ()) for name in NAMES[:2]}
HAND = [
    ("a lock in which all requirements hold", HELD, PAIR, [("arrow", *ANY)]),
    ("a bound that was raised", {"arrow": (1, 0)}, FREE, [("arrow", (1, 9), (3, 0))]),
    ("a version of two digits", {"arrow": (1, 10)}, FREE, [("arrow", (1, 9), (2, 0))]),
    ("an upper bound", {"arrow": (2, 0)}, FREE, [("arrow", (1, 0), (2, 0))]),
    ("a new requirement", {"arrow": (1, 0)}, FREE, [("arrow", *ANY), ("basalt", *ANY)]),
    ("a package that nobody needs any more", {"arrow": (1, 0), "basalt": (1, 0)}, FREE, [("arrow", *ANY)]),
    ("a change that brings another", HELD, PAIR, [("arrow", *TWO)]),
    ("a requirement that the newest version breaks", {"arrow": (1, 0)}, PAIR, [("arrow", *ANY), ("basalt", *ONE)]),
    ("no answer", HELD, PAIR, [("arrow", *TWO), ("basalt", *ONE)]),
    ("a package that is not in the index", {"arrow": (1, 0)}, FREE, [("arrow", *ANY), ("flint", *ANY)]),
    (
        "two packages that need each other",
        {"arrow": (1, 0), "basalt": (1, 0)},
        {"arrow": {(1, 0): [("basalt", *ONE)]}, "basalt": {(1, 0): [("arrow", *ANY)], (1, 9): [("arrow", *ANY)]}},
        [("arrow", *ANY), ("basalt", (1, 9), (2, 0))],
    ),
    (
        "one change here or two there",
        {"arrow": (1, 0), "basalt": (1, 0), "cedar": (1, 0)},
        {
            "arrow": {(1, 0): [("cedar", *ONE)], (2, 0): [("cedar", *TWO)]},
            "basalt": {
                (1, 0): [("cedar", *ONE)],
                (1, 9): [("cedar", *TWO), ("delta", *ANY)],
                (1, 10): [("cedar", *ONE)],
            },
            "cedar": {(1, 0): [], (2, 0): []},
            "delta": {(1, 0): []},
        },
        [("arrow", *ANY), ("basalt", (1, 9), (2, 0))],
    ),
    (
        "a first package that costs more changes to keep",
        {"arrow": (1, 0), "basalt": (1, 0), "cedar": (1, 0), "delta": (1, 0)},
        {
            "arrow": {(1, 0): [("basalt", *ANY), ("delta", *ANY)], (2, 0): []},
            "basalt": {(1, 0): [("cedar", *ONE)], (2, 0): [("cedar", *TWO)]},
            "cedar": {(1, 0): [], (2, 0): []},
            "delta": {(1, 0): [("cedar", *ONE)], (2, 0): [("cedar", *TWO)]},
        },
        [("arrow", *ANY), ("cedar", *TWO)],
    ),
    (
        "a version that brings a new package, and one that does not",
        {"basalt": (1, 0)},
        {"basalt": {(1, 0): [], (1, 9): [("delta", *ANY)], (1, 10): []}, "delta": {(1, 0): []}},
        [("basalt", (1, 9), (2, 0))],
    ),
]


def drawn(seed):
    draw = Random(seed)

    def requirement(name):
        least = draw.choice(VERSIONS)
        return (name, least, draw.choice([each for each in (*VERSIONS, (3, 0)) if each > least]))

    index = {}
    for name in draw.sample(NAMES, 4):
        versions = draw.sample(VERSIONS, draw.randint(1, 3))
        index[name] = {
            each: [requirement(other) for other in draw.sample(NAMES, draw.randint(0, 2))] for each in versions
        }
    lock = {name: draw.choice(list(index[name])) for name in draw.sample(list(index), 3)}
    return lock, index, [requirement(name) for name in draw.sample(list(index), draw.randint(1, 2))]


def test_cases():
    for about, *given in HAND:
        yield alone(lambda given=given: tuple(given), about)
    for seed in range(40):
        yield alone(lambda seed=seed: drawn(seed), f"a drawn lock, number {seed}")


def shown(version):
    return ".".join(map(str, version))


class Mended(Target):
    """Any answer with as few changes is right."""

    name, decides = "values", True

    def shown(self, trial):
        return trial.returned[0]

    def judge(self, exercise, trial, right):
        got, its = trial.returned[0], right.returned[0]
        lock, index, requirements = trial.case.arguments(0)
        if its is None and got is not None:
            raise Wrong(f"it returned {got!r}, where no answer fits: None is right")
        if its is not None and not isinstance(got, dict):
            raise Malformed(f"it returned {got!r}, where a dict like {its!r} is right")
        if its is not None:
            self.holds_in(got, index, requirements)
            mine, fewest = changes(got, lock), changes(its, lock)
            if len(mine) > len(fewest):
                raise Wrong(f"{got!r} changes {len(mine)} packages ({', '.join(mine)}), and {len(fewest)} are enough")

    def holds_in(self, got, index, requirements):
        queue, reached = [("The project", requirement) for requirement in requirements], set()
        while queue:
            by, (name, least, below) = queue.pop(0)
            if name not in got:
                raise Wrong(f"{by} asks for {name}, which is missing: {got!r}")
            if got[name] not in index[name]:
                raise Wrong(f"{name} {got[name]!r} is not in the index")
            if not least <= got[name] < below:
                bounds = f"at least {shown(least)} and below {shown(below)}"
                raise Wrong(f"{by} asks for {name} {bounds}, and it is {shown(got[name])}")
            if name not in reached:
                reached.add(name)
                queue += [(name, requirement) for requirement in index[name][got[name]]]
        if extra := sorted(got.keys() - reached):
            raise Wrong(f"nobody asks for {extra[0]}: {got!r}")


def changes(answer, lock):
    return sorted(name for name, version in answer.items() if lock.get(name) != version)


@exercise(
    title="Mend a lock",
    minutes=30,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Mended("all requirements hold, with as few changes as can be: of 14 locks made by hand, and 40 drawn ones"),
    ],
    mistakes=[
        mistake(
            "The first answer that you find need not be the one with the fewest changes: look at all",
            "min(answers(list(requirements), {}), key=changes, default=None)",
            "next(answers(list(requirements), {}), None)",
        ),
        mistake(
            "A version that is chosen has requirements of its own",
            "[*requirements, *needs]",
            "requirements",
        ),
        mistake(
            "A version below the bound is allowed, and not the bound itself",
            "least <= chosen[name] < below",
            "least <= chosen[name] <= below",
        ),
        mistake(
            "A package that the lock does not have is a change, too",
            "sum(lock.get(name) != version for name, version in answer.items())",
            "sum(lock.get(name, version) != version for name, version in answer.items())",
        ),
        mistake(
            "What nobody asks for any more is left out",
            "return min(answers(list(requirements), {}), key=changes, default=None)",
            "return min(({**lock, **each} for each in answers(list(requirements), {})), key=changes, default=None)",
        ),
    ],
    hints=[
        "Section 2's resolve goes through all choices and stops at the first answer. Go on instead, and keep the best.",
        "answers(requirements, chosen) can be a generator: return where one fails; yield chosen where "
        "nothing is open; else try each version of the first open package, with its requirements added: yield from ...",
        "min(..., key=changes, default=None) takes the answer with the fewest changes, or None if there is none.",
    ],
    why="A mended lock that is a new one in disguise changes versions that nobody has tested together. uv has the same "
    "aim: it prefers the locked versions, and changes one only if a requirement excludes it. To look at all answers "
    "takes too long for a large project, so resolvers try the locked version first; in one of these locks that costs a "
    "change.",
)
def mend_lock(lock, index, requirements):
    """Return an answer to ``requirements``, a dict name -> version, with as few changes of ``lock`` as can be; or None.

    ``lock`` is the old answer, name -> version. ``index`` is what there is, name -> {version: its requirements}. A
    requirement (name, least, below) holds for a version with least <= version < below; versions are tuples of two
    numbers, (2, 10). An answer has each package that ``requirements`` or a version in the answer ask for, in a version
    of the index, so that all requirements hold, and no other package. A change is a package of the answer that the lock
    does not have in this version. Of answers with as few changes, any is right. None: there is no answer.
    """

    def answers(requirements, chosen):
        # ? All of them: does a requirement fail? Is a package open? In which versions?
        if any(name in chosen and not least <= chosen[name] < below for name, least, below in requirements):
            return
        missing = [name for name, *_ in requirements if name not in chosen]
        if not missing:
            yield chosen
            return
        for version, needs in index.get(missing[0], {}).items():
            yield from answers([*requirements, *needs], chosen | {missing[0]: version})

    def changes(answer):
        # ? How many?
        return sum(lock.get(name) != version for name, version in answer.items())

    # ? The best of them.
    return min(answers(list(requirements), {}), key=changes, default=None)
