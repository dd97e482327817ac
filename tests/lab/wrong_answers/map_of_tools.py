"""Wrong answers to the exercises of 22_map_of_tools: each with the property that rejects it, and what it is told."""

from lab.registered import collection, solved

WRONG_ANSWERS, wrong = collection()


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


@wrong("faults_of_lock", "values", "the third number")
def reads_two_numbers_of_a_version(lock, platform):
    def short(version):
        return ".".join(version.split(".")[:2])

    shortened = {}
    for name, package in lock.items():
        needs = [(other, operator, short(bound)) for other, operator, bound in package["needs"]]
        shortened[name] = package | {"version": short(package["version"]), "needs": needs}
    return solved("faults_of_lock")(shortened, platform)


@wrong("faults_of_lock", "values", "another processor")
def compares_the_operating_system_alone(lock, platform):
    renamed = {}
    for name, package in lock.items():
        wheels = [wheel | {"platform": wheel["platform"].split("_")[0]} for wheel in package["wheels"]]
        renamed[name] = package | {"wheels": wheels}
    return solved("faults_of_lock")(renamed, platform.split("_")[0])


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


@wrong("cite", "values", "a hyphen and a digit")
def splits_at_spaces(notes, question, k):
    def letters(text):
        words = (word.strip(".,:?!") for word in text.lower().split())
        return " ".join(word for word in words if word.isalpha())

    cut = [(source, letters(text)) for source, text in notes]
    found = solved("cite")([(number, text) for number, (_, text) in enumerate(cut)], letters(question), k)
    taken = [notes[number] for number in found["sources"]]
    return {"context": [text for _, text in taken], "sources": list(dict.fromkeys(source for source, _ in taken))}
