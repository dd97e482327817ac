"""Other right answers to the exercises of 22_map_of_tools: they must pass."""

import itertools
import math
import re

from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("faults_of_lock")
def with_tuples_of_three(lock, platform):
    def numbers(version):
        return tuple(map(int, (version + ".0.0").split(".")))[:3]

    compare = {"==": tuple.__eq__, ">=": tuple.__ge__, "<": tuple.__lt__}
    faults = set()
    for name, package in lock.items():
        for other, operator, bound in package["needs"]:
            there = lock.get(other)
            if there is None or not compare[operator](numbers(there["version"]), numbers(bound)):
                faults.add((name, "needs", other))
        hashes = [each["hash"] for each in package["wheels"] if each["platform"] in (platform, "any")]
        if not hashes:
            faults.add((name, "platform", ""))
        elif "" in hashes:
            faults.add((name, "hash", ""))
    return sorted(faults)


@right("mend_lock")
def with_all_combinations(lock, index, requirements):
    fewest = None
    for versions in itertools.product(*([None, *index[name]] for name in index)):
        answer = {name: version for name, version in zip(index, versions) if version}
        wanted, reached = list(requirements), set()
        for name, _, _ in wanted:  # it grows
            if name in answer and name not in reached:
                reached.add(name)
                wanted += index[name][answer[name]]
        hold = all(name in answer and least <= answer[name] < below for name, least, below in wanted)
        if hold and reached == set(answer):
            changed = len(answer.items() - lock.items())
            if fewest is None or changed < fewest[0]:
                fewest = changed, answer
    return fewest and fewest[1]


@right("cite")
def with_vectors(notes, question, k):
    def words(text):
        return re.findall("[a-z]+", text.lower())

    dimensions = sorted({word for text in (question, *(text for _, text in notes)) for word in words(text)})

    def vector(text):
        counts = [words(text).count(word) for word in dimensions]
        length = math.hypot(*counts) or 1.0
        return [count / length for count in counts]

    asked = vector(question)
    near = [round(math.fsum(a * b for a, b in zip(vector(text), asked)), 9) for _, text in notes]
    places = [place for place in range(len(notes)) if near[place]]
    taken = [notes[place] for place in sorted(places, key=lambda place: (-near[place], place))[:k]]
    return {"context": [text for _, text in taken], "sources": list(dict.fromkeys(source for source, _ in taken))}
