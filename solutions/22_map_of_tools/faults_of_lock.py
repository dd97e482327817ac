"""What is wrong with a lock file: versions, hashes and platforms, before anything is downloaded."""

from random import Random

from tinydist.lab.author import alone, exercise, mistake

from .chapter import BY_HAND, Equal

PLATFORMS = ["linux_x86_64", "macosx_arm64", "win_amd64"]
NAMES = ["arrow", "basalt", "cedar", "delta", "ember", "flint"]


def package(version, needs=(), wheels=(("any", "sha256:0a"),)):
    listed = [{"platform": platform, "hash": digest} for platform, digest in wheels]
    return {"version": version, "needs": list(needs), "wheels": listed}


ON_TWO = (("linux_x86_64", "sha256:1f"), ("macosx_arm64", "sha256:2e"))
ON_MAC = (("macosx_arm64", "sha256:2e"),)
BARE = (("linux_x86_64", ""), ("macosx_arm64", "sha256:2e"))
HAND = [
    ("all is well", {"arrow": package("1.0", [("basalt", ">=", "2.0")]), "basalt": package("2.0", (), ON_TWO)}),
    ("a version that is too old", {"arrow": package("1.0", [("basalt", ">=", "2.1")]), "basalt": package("2.0")}),
    ("a version of two digits", {"arrow": package("1.0", [("basalt", ">=", "2.9")]), "basalt": package("2.10")}),
    ("a short version", {"arrow": package("1.0", [("basalt", ">=", "2.0.0")]), "basalt": package("2")}),
    ("an upper bound", {"arrow": package("1.0", [("basalt", "<", "2.0")]), "basalt": package("2.0")}),
    ("an exact version", {"arrow": package("1.0", [("basalt", "==", "2.0.0")]), "basalt": package("2.0")}),
    ("nothing by that name", {"arrow": package("1.0", [("cedar", ">=", "1.0")])}),
    ("no wheel for this platform", {"arrow": package("1.0", (), ON_MAC)}),
    ("no hash for this platform", {"arrow": package("1.0", (), BARE)}),
    ("no hash for another platform", {"arrow": package("1.0", (), (ON_TWO[0], ("macosx_arm64", "")))}),
    ("a wheel for any, without a hash", {"arrow": package("1.0", (), (("any", ""),))}),
    (
        "two packages need the same",
        {
            "arrow": package("1.0", [("cedar", ">=", "2.0")]),
            "basalt": package("1.0", [("cedar", "<", "2.0")]),
            "cedar": package("2.5"),
        },
    ),
    ("the third number", {"arrow": package("1.0", [("basalt", ">=", "2.0.1")]), "basalt": package("2.0.0")}),
    ("another processor", {"arrow": package("1.0", (), (("linux_aarch64", "sha256:1f"),))}),
    ("two wheels fit", {"arrow": package("1.0", (), (("any", "sha256:0a"), ("linux_x86_64", "")))}),
]


def drawn(seed):
    draw = Random(seed)

    def version():
        return ".".join(str(draw.choice((0, 1, 2, 9, 10, 11))) for _ in range(draw.randint(1, 3)))

    lock = {}
    for name in draw.sample(NAMES, draw.randint(2, 6)):
        others = draw.sample(NAMES, draw.randint(0, 2))
        needs = [(other, draw.choice(("==", ">=", ">=", "<")), version()) for other in others]
        places = draw.choice((["any"], PLATFORMS, PLATFORMS[:2], PLATFORMS[1:], ["any", PLATFORMS[0]]))
        wheels = [(place, draw.choice((f"sha256:{draw.randrange(256):02x}", "sha256:7b", ""))) for place in places]
        lock[name] = package(version(), needs, wheels)
    return lock, draw.choice(PLATFORMS)


def test_cases():
    for about, lock in HAND:
        yield alone(lambda lock=lock: (lock, "linux_x86_64"), about)
    for seed in range(24):
        yield alone(lambda seed=seed: drawn(seed), f"a drawn lock, number {seed}")


@exercise(
    title="The faults of a lock",
    minutes=30,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Equal("the sorted list of faults: of 15 locks made by hand, and 24 drawn ones, on three platforms"),
    ],
    mistakes=[
        mistake(
            "Versions are compared number by number: 2.10 comes after 2.9",
            '[int(part) for part in version.split(".")]',
            'version.split(".")',
            "while parts and parts[-1] == 0",
            'while parts and parts[-1] == "0"',
        ),
        mistake("2, 2.0 and 2.0.0 are one version", "while parts and parts[-1] == 0", "while False"),
        mistake("A version below the bound is allowed, and not the bound itself", "here < bound", "here <= bound"),
        mistake("At least that version: the bound itself is allowed, too", "here >= bound", "here > bound"),
        mistake(
            "A hash is needed for the wheels that fit this platform; the others are never downloaded here",
            'any(not wheel["hash"] for wheel in fitting)',
            'any(not wheel["hash"] for wheel in package["wheels"])',
        ),
        mistake('A wheel for "any" fits each platform', 'in ("any", platform)', "in (platform,)"),
        mistake(
            "Each wheel that fits may be the one that is installed: all of them need a hash",
            'any(not wheel["hash"] for wheel in fitting)',
            'all(not wheel["hash"] for wheel in fitting)',
        ),
        mistake("The list is asked for sorted", "return sorted(faults)", "return faults"),
    ],
    hints=[
        "Go through the packages. Each has three questions: is what it needs there, and in a version that is allowed? "
        "Is there a wheel for this platform? Has it a hash?",
        'Turn a version into a list of integers, and leave out zeros at its end: "2.10.0" becomes [2, 10]. Python '
        "compares lists number by number.",
        'The wheels that fit have the platform "any" or yours. If there is none, say so, and do not ask for hashes.',
    ],
    why="An installer asks these questions before it runs a stranger's code on your machine: pip in "
    "--require-hashes mode refuses a lock in which one hash is missing. A resolver asks the first one thousands of "
    "times, for each version that it tries; a lock is the answer, written down.",
)
def faults_of_lock(lock, platform):
    """Return the faults of ``lock`` for a machine of this ``platform``, as a sorted list of tuples.

    ``lock`` is a dict, name -> {"version": "2.10", "needs": [(name, operator, version), ...], "wheels": [{"platform":
    "any" or "linux_x86_64" or ..., "hash": "sha256:..." or ""}, ...]}. The operator is "==", ">=" or "<", and a version
    is 1 to 3 whole numbers separated by dots; 2.0 is the same version as 2.

    There are three faults. (name, "needs", other): the package needs another that is not in the lock, or not in an
    allowed version. (name, "platform", ""): it has no wheel for this platform. (name, "hash", ""): of its wheels for
    this platform, at least one has no hash.
    """

    def numbers(version):
        # ? Which of two versions is later?
        parts = [int(part) for part in version.split(".")]
        while parts and parts[-1] == 0:
            parts.pop()
        return parts

    def allowed(version, operator, other):
        here, bound = numbers(version), numbers(other)
        # ? Three operators.
        if operator == "==":
            return here == bound
        return here >= bound if operator == ">=" else here < bound

    faults = []
    for name, package in lock.items():
        # ? What it needs, in which version?
        for other, operator, version in package["needs"]:
            if other not in lock or not allowed(lock[other]["version"], operator, version):
                faults.append((name, "needs", other))
        # ? Which of its wheels fit?
        fitting = [wheel for wheel in package["wheels"] if wheel["platform"] in ("any", platform)]
        if not fitting:
            faults.append((name, "platform", ""))
        elif any(not wheel["hash"] for wheel in fitting):
            faults.append((name, "hash", ""))
    return sorted(faults)
