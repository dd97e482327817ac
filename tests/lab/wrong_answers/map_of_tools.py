"""Wrong answers to the exercises of 22_map_of_tools: each with the property that rejects it, and what it is told."""

import math
import re
from collections import Counter

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


@wrong("mend_lock", "values", "a bound that was raised")
def leaves_the_lock_as_it_is(lock, index, requirements):
    return lock if solved("mend_lock")(lock, index, requirements) is not None else None


@wrong("mend_lock", "values", "are enough")
def resolves_anew_with_the_newest_first(lock, index, requirements):
    newest = {name: dict(sorted(index[name].items(), reverse=True)) for name in index}
    return solved("mend_lock")({}, newest, requirements)


@wrong("mend_lock", "values", "no answer fits")
def mends_each_package_alone(lock, index, requirements):
    answer, queue = {}, list(requirements)
    while queue:
        name, least, below = queue.pop(0)
        fitting = [each for each in index.get(name, {}) if least <= each < below]
        if not fitting:
            return None
        if name not in answer or answer[name] not in fitting:
            answer[name] = lock[name] if lock.get(name) in fitting else max(fitting)
            queue += index[name][answer[name]]
    return answer


@wrong("mend_lock", "values", "costs more changes to keep")
def takes_the_first_answer_with_locked_versions_first(lock, index, requirements):
    def found(requirements, chosen):
        if any(name in chosen and not least <= chosen[name] < below for name, least, below in requirements):
            return None
        missing = [name for name, *_ in requirements if name not in chosen]
        if not missing:
            return chosen
        here = index.get(missing[0], {})
        for version in sorted(here, key=lambda version: version != lock.get(missing[0])):
            answer = found([*requirements, *here[version]], chosen | {missing[0]: version})
            if answer is not None:
                return answer
        return None

    return found(list(requirements), {})


@wrong("mend_lock", "values", "nobody asks")
def keeps_what_nobody_needs(lock, index, requirements):
    answer = solved("mend_lock")(lock, index, requirements)
    return answer if answer is None else lock | answer


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


@wrong("cite", "values", "a tie but for rounding")
def compares_last_digits(notes, question, k):
    def count(text):
        return Counter(re.findall("[a-z]+", text.lower()))

    def near(text):
        one, other = count(text), count(question)
        shared = sum(one[word] * other[word] for word in one)
        lengths = [math.sqrt(sum(number**2 for number in each.values())) for each in (one, other)]
        return shared / (lengths[0] * lengths[1]) if shared else 0.0

    order = sorted((note for note in notes if near(note[1])), key=lambda note: -near(note[1]))[:k]
    return {"context": [text for _, text in order], "sources": list(dict.fromkeys(source for source, _ in order))}
