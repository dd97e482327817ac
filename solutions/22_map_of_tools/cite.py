"""A retrieval step that cites: the context of an answer, the sources it was taken from, or none."""

import math
import re
from collections import Counter
from random import Random

from tinydist.lab.author import alone, exercise, mistake

from .chapter import BY_HAND, Equal

WORDS = ["rank", "group", "ring", "shard", "layer", "batch", "token", "cache", "bubble", "gradient", "head", "expert"]
HAND = [
    ("one note fits", [("a", "A ring sends shards."), ("b", "A cache keeps tokens.")], "Which cache?", 1),
    ("the nearer of two", [("a", "A ring."), ("b", "A ring of caches.")], "ring, caches", 1),
    ("none fits", [("a", "A ring sends shards."), ("b", "It keeps tokens.")], "Who wins?", 1),
    ("the shorter note is nearer", [("a", "ring of ranks and of hosts"), ("b", "ring")], "ring", 1),
    ("a tie: the first note", [("b", "ring one"), ("a", "ring two")], "ring", 1),
    ("a tie but for rounding", [("b", "ring shard"), ("a", "ring shard " * 3)], "ring shard", 1),
    ("two notes, the nearer one first", [("a", "ring of shards"), ("b", "ring"), ("c", "bubble")], "ring", 2),
    ("fewer notes fit than are asked for", [("a", "ring"), ("b", "bubble")], "ring", 2),
    ("capitals and points", [("a", "RING, again: ring!"), ("b", "bubble")], "Ring?", 1),
    ("a hyphen and a digit", [("a", "bubble"), ("b", "An all-reduce of fp32")], "reduce fp16", 1),
    ("two notes of one source", [("a", "ring one"), ("a", "ring two"), ("b", "bubble")], "ring", 2),
    ("a word twice", [("a", "ring ring bubble"), ("b", "ring bubble bubble")], "ring ring bubble", 1),
    ("no word at all", [("a", "ring")], "?!", 1),
    ("an empty note", [("a", ""), ("b", "ring")], "ring", 1),
]


def drawn(seed):
    draw = Random(seed)
    notes = []
    for number in range(draw.randint(2, 6)):
        words = draw.choices(WORDS, k=draw.randint(1, 6))
        notes.append((f"note {draw.choice('xyz')}{number % 3}", " ".join(words).capitalize() + "."))
    question = " ".join(draw.choices([*WORDS, "why", "how"], k=draw.randint(1, 3))) + "?"
    return notes, question, draw.randint(1, 3)


def test_cases():
    for about, *given in HAND:
        yield alone(lambda given=given: tuple(given), about)
    for seed in range(30):
        yield alone(lambda seed=seed: drawn(seed), f"drawn notes, number {seed}")


@exercise(
    title="An answer that cites its source",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        BY_HAND,
        Equal("context and sources: 14 sets of notes made by hand, and 30 drawn ones, with ties and with no answer"),
    ],
    mistakes=[
        mistake(
            "A note that shares no word with the question is no source, even if nothing else is there",
            "if likeness[place] > 0",
            "if likeness[place] >= 0",
        ),
        mistake(
            "Of equally near notes, the first is taken",
            "key=lambda place: -likeness[place]",
            "key=lambda place: (-likeness[place], -place)",
        ),
        mistake(
            "Without the lengths a long note wins because it is long: divide by the norms of both",
            "shared / (norm(one) * norm(other))",
            "shared",
        ),
        mistake(
            "A word that is there twice counts twice",
            'Counter(re.findall("[a-z]+", text.lower()))',
            'Counter(set(re.findall("[a-z]+", text.lower())))',
        ),
        mistake("Ring and ring are one word", "text.lower()", "text"),
        mistake("A source is cited once", "if source not in sources:", "if True:"),
        mistake("At most k notes are taken", "[:k]", "[: k + 1]"),
        mistake("The nearest note is the first", "-likeness[place]", "likeness[place]"),
    ],
    hints=[
        "Three steps: how near is each note, which k are nearest, and what is said of them.",
        "Counter(re.findall(r'[a-z]+', text.lower())) counts words. The cosine of two such counts is the sum of the "
        "products over the words that both have, divided by both norms; it is 0 where they share none.",
        "sorted() leaves what is equal in its order, so a sort by minus the cosine keeps the first of equal notes "
        "first. Drop notes with a cosine of 0 after that.",
    ],
    why="A model answers in the same tone with and without a source, so the step before it must know the difference: "
    "an application that finds nothing should say so and not ask. That a citation is right can be tested without any "
    "model, as here; that the answer follows from it cannot.",
)
def cite(notes, question, k):
    """Return {"context": texts, "sources": sources}: what a model is given for its answer, and what the answer cites.

    ``notes`` is a list of (source, text). Words are runs of the letters a to z, in lower case. How near a note is to
    the question is the cosine of their word counts; cosines that differ by less than 1e-9 are equal. ``context`` has
    the texts of the ``k`` nearest notes, the nearest first; equally near ones stay in the order of ``notes``. A note
    that shares no word with the question is not taken, so there may be fewer, or none. ``sources`` lists their sources
    in the same order, each once.
    """

    def count(text):
        return Counter(re.findall("[a-z]+", text.lower()))

    def norm(counts):
        return math.sqrt(sum(number**2 for number in counts.values()))

    def cosine(one, other):
        # ? What do two counts share?
        shared = sum(one[word] * other[word] for word in one)
        return round(shared / (norm(one) * norm(other)), 9) if shared else 0.0

    asked = count(question)
    likeness = [cosine(count(text), asked) for _, text in notes]
    # ? Which notes, in which order?
    order = sorted(range(len(notes)), key=lambda place: -likeness[place])
    taken = [place for place in order if likeness[place] > 0][:k]
    # ? Each source once.
    sources = []
    for source in (notes[place][0] for place in taken):
        if source not in sources:
            sources.append(source)
    return {"context": [notes[place][1] for place in taken], "sources": sources}
