"""Wrong answers to the exercises of 22_map_of_tools: each with the property that rejects it, and what it is told."""

from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()


@wrong("faults_of_lock", "values", "none")
def finds_nothing(lock, platform):
    pass


@wrong("faults_of_lock", "own work", "packaging")
def lets_packaging_compare(lock, platform):
    from packaging.version import Version

    assert Version("2.0") == Version("2")
    return solved("faults_of_lock")(lock, platform)


@wrong("faults_of_lock", "values", "number by number")
def compares_texts(lock, platform):
    def padded(version):
        return [each for each in version.split(".")] + ["0"] * (3 - len(version.split(".")))

    faults = []
    for name, package in lock.items():
        for other, operator, bound in package["needs"]:
            if other in lock:
                here, there = padded(lock[other]["version"]), padded(bound)
                if {"==": here == there, ">=": here >= there, "<": here < there}[operator]:
                    continue
            faults.append((name, "needs", other))
    return sorted(faults + [each for each in solved("faults_of_lock")(lock, platform) if each[1] != "needs"])


@wrong("faults_of_lock", "values", "lacks")
def tells_each_need_that_is_there_nothing(lock, platform):
    missing = {other for package in lock.values() for other, *_ in package["needs"]} - lock.keys()
    return [each for each in solved("faults_of_lock")(lock, platform) if each[1] != "needs" or each[2] in missing]


@wrong("cite", "values", "context")
def returns_the_text(notes, question, k):
    return notes[0][1]


@wrong("cite", "values", "no source")
def always_cites_somebody(notes, question, k):
    right = solved("cite")(notes, question, k)
    return right if right["context"] else {"context": [notes[0][1]], "sources": [notes[0][0]]}


@wrong("cite", "values", "sources")
def cites_all(notes, question, k):
    return solved("cite")(notes, question, k) | {"sources": [source for source, _ in notes]}
