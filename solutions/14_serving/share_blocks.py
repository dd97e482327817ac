"""An allocator of blocks that sequences share until one of them writes."""

from random import Random

from tinydist.lab.author import Part, Wrong, alone, exercise, kind, mistake

from .chapter import BY_HAND, events_of

CASES = [  # about, blocks, size, events
    ("one sequence", 4, 4, "a+3 a+1 a+4"),
    ("blocks of one token", 9, 1, "a+2 b=a b+1 a+2"),
    ("one that ends, and another", 3, 4, "a+5 b+1 a. c+4"),
    ("three samples, many tokens", 12, 4, "a+6 b=a c=b c+7 a+7 b+7"),
    ("a fork, and both go on", 5, 4, "a+6 b=a b+1 a+1"),
    ("a fork of a full block", 5, 3, "a+6 b=a b+1 a+1"),
    ("a fork, and nothing is added", 5, 4, "a+6 b=a b+0"),
    ("a fork whose first ends", 5, 4, "a+6 b=a a. b+1 c+5"),
    ("two drops", 6, 4, "a+12 a-3 b+1 a-5"),
    ("a drop to nothing", 2, 4, "a+6 a-6 b+8 a+0"),
    ("a drop to nothing at the end", 2, 4, "a+6 a-6"),
    ("one that ends below another", 6, 2, "a+3 b+3 a. c+1"),
    ("a drop into a full block that is shared", 6, 2, "a+6 b=a b-1 b+1 a+1"),
    ("a drop of a block that is shared", 6, 4, "a+6 b=a b-3 b+2 a+3"),
    ("too little memory", 2, 4, "a+6 a+3 a+2"),
    ("too little memory for the copy", 2, 4, "a+6 b=a b+1 a. b+2"),
    ("too little memory for the copy and a block", 3, 4, "a+6 b=a b+3 b+2"),
    ("an empty pool", 0, 16, "a+6 b+0"),
]


def drawn(seed):
    """Any events, with blocks enough for all."""
    draw, lengths, events = Random(seed), {}, []
    for _ in range(16):
        name, what, old = draw.choice("abcd"), draw.choice("+++==-."), draw.choice([*lengths, ""])
        if what == "+" or not lengths:
            tokens = draw.randint(0, 6)
            lengths[name] = lengths.get(name, 0) + tokens
            events.append(f"{name}+{tokens}")
        elif what == "=" and old and name not in lengths:
            lengths[name] = lengths[old]
            events.append(f"{name}={old}")
        elif what == "-" and old:
            tokens = draw.randint(0, lengths[old])
            lengths[old] -= tokens
            events.append(f"{old}-{tokens}")
        elif what == "." and old:
            del lengths[old]
            events.append(f"{old}.")
    return "drawn", 40, draw.randint(2, 5), " ".join(events)


def test_cases():
    for about, blocks, size, events in [*CASES, *map(drawn, range(12))]:
        given = blocks, size, [("append" if what == "add" else what, *more) for what, *more in events_of(events)]
        yield alone(lambda given=given: (*given[:2], [*given[2]]), f"{about} ({events}), {blocks} blocks of {size}")


def replay(answer, blocks, size, events):
    """As texts, each of which is compared as a whole."""
    found = answer(blocks, size, events)
    names = ("tables", "references", "copies", "refused")
    if not isinstance(found, tuple | list) or len(found) != 4 or not isinstance(found[0], dict):
        raise Wrong(f"it returned {kind(found)}, where a dict and three lists are right: {', '.join(names)}")
    tables, references, copies, refused = found
    if not all(isinstance(pair, tuple | list) for pair in copies):
        raise Wrong(
            f"as copies, the third of {', '.join(names)}, it returned {copies}, where pairs are right, (from, to)"
        )
    tables = {name: [*table] for name, table in sorted(tables.items())}
    return dict(zip(names, map(str, (tables, [*references], [tuple(pair) for pair in copies], [*refused]))))


COPY = "shared = tokens > 0 and length % size > 0 and references[table[-1]] > 1"

FORK = "references[block] += 1\n        elif"
GONE = "            for block in tables[name][kept:]:\n                references[block] -= 1\n"
FREE = "block = references.index(0)"
TAKEN = "table += [take() for _ in range(new)]"
ORDER = """            if shared:
                old, table[-1] = table[-1], take()
                references[old] -= 1
                copies.append((old, table[-1]))
            table += [take() for _ in range(new)]
"""
NEW_FIRST = """            place = len(table) - 1
            table += [take() for _ in range(new)]
            if shared:
                old, table[place] = table[place], take()
                references[old] -= 1
                copies.append((old, table[place]))
"""
VARIANTS = [
    ("At a fork the blocks get an owner more: count it", FORK, "pass\n        elif"),
    (
        "The free block with the largest number is taken: take the smallest",
        FREE,
        "block = blocks - 1 - references[::-1].index(0)",
    ),
    ("The copy is taken after the new blocks: it comes first of all", ORDER, NEW_FIRST),
    (
        "A drop gives no block back: blocks in which none of the tokens is left go",
        "kept = needed(lengths[name])",
        'kept = len(tables[name]) if what == "drop" else 0',
    ),
    (
        "A drop gives back the block that still has tokens: round up",
        "kept = needed(lengths[name])",
        "kept = lengths[name] // size",
    ),
    (
        "A drop gives back blocks for the tokens that are dropped, and not for those that are left",
        "kept = needed(lengths[name])",
        "kept = len(tables[name]) - more[0] // size if more else 0",
    ),
    (
        "The blocks of a drop leave the table, and are still counted: they have an owner less",
        GONE,
        '            for block in tables[name][kept:]:\n                references[block] -= what == "end"\n',
    ),
    (
        "At an end the blocks are still counted: they have an owner less",
        GONE,
        '            for block in tables[name][kept:]:\n                references[block] -= what == "drop"\n',
    ),
    (
        "A drop makes the sequence shorter: its length stays as it was here",
        "lengths[name] -= more[0] if more else lengths[name]\n            kept = needed(lengths[name])",
        "kept = needed(lengths[name] - more[0]) if more else 0",
    ),
    (
        "A new name that is refused is not there: this leaves an empty table",
        "                refused.append(number)\n",
        "                refused.append(number)\n                tables.setdefault(name, []), "
        "lengths.setdefault(name, 0)\n",
    ),
    (
        "A copy is (from, to): these are (to, from)",
        "copies.append((old, table[-1]))",
        "copies.append((table[-1], old))",
    ),
    (
        "What is refused changes nothing, and what comes afterwards may fit",
        "                refused.append(number)\n                continue\n",
        "                refused.append(number)\n                break\n",
    ),
    ("An append of no tokens writes nothing, and needs no copy", "tokens > 0 and length", "length"),
    (
        "An append of no tokens writes nothing, and needs no copy. Where one is needed it takes a block as well, which "
        "must be free",
        "tokens > 0 and length",
        "length",
        "if new + shared >",
        "if new >",
    ),
    ("What just fits is not refused: as many as are free may be taken", "if new + shared >", "if new + shared >="),
    ("Events are counted from 0, all of them", "refused.append(number)", "refused.append(number + 1)"),
    ("These are names: which events were refused is asked for", "refused.append(number)", "refused.append(name)"),
    (
        "A fork copies its blocks at once: it begins with the same ones, and copies come when somebody writes",
        "[*tables[name]], lengths[name]\n            for block in tables[name]:\n                references[block] += "
        "1",
        "[take() for _ in tables[name]], lengths[name]",
    ),
]


@exercise(
    title="Blocks that are shared until someone writes",
    minutes=35,
    difficulty=4,
    test_cases=test_cases,
    program=replay,
    targets=[
        BY_HAND,
        Part("refused", "refused", "what does not fit changes nothing; a copy takes a block, too", variants=VARIANTS),
        Part("copies", "copies", "a shared block is copied before it is written, and no other is", variants=VARIANTS),
        Part(
            "tables", "tables", "always the free block with the smallest number, for the copy first", variants=VARIANTS
        ),
        Part("references", "references", "how many tables name each block", variants=VARIANTS),
    ],
    mistakes=[
        mistake(
            "Nothing is copied: whoever writes to a block that another has, too, changes the other's tokens",
            COPY,
            "shared = False",
        ),
        mistake(
            "A full block is copied. Nobody writes to it any more: the next token begins a block of its own",
            " and length % size > 0 and references[table[-1]] > 1",
            " and length > 0 and references[table[-1]] > 1",
        ),
        mistake(
            "A block is copied that nobody else has: if its other owners are gone, or have copies of their own, it may "
            "be written",
            " and references[table[-1]] > 1",
            "",
        ),
        mistake(
            "Both go by one list: what one appends, the other has, too. Give the fork a list of its own",
            "[*tables[name]]",
            "tables[name]",
        ),
        mistake(
            "The copy takes a block as well: it is refused if there is none left for it",
            "if new + shared >",
            "if new >",
        ),
        mistake(
            "A block has room for size tokens: so many that fill it need no other",
            "needed(length + tokens) - len(table)",
            "(length + tokens) // size + 1 - len(table)",
        ),
        mistake(
            "Who copies leaves the old block: it has one owner less",
            "                references[old] -= 1\n",
            "",
        ),
        mistake(
            "Blocks are free while others still have them: with an owner less there is only one less",
            "references[block] -= 1",
            "references[block] = 0",
        ),
    ],
    hints=[
        "A block is free if no table names it. What must therefore change at a fork, at an end, at a drop?",
        "Only one block of a table can be written: the last, and only if it is not full. It needs a copy if another "
        "table names it, too, and something is written at all.",
        "Count before you take: the new blocks, and one for the copy. If fewer are free, nothing may have changed.",
        "A drop first makes the length smaller. Blocks behind needed(length) go, one owner less each: others may still "
        "have them.",
    ],
    why="Samples of one prompt, beams and prefixes in common take the memory of one. The price is a count for each "
    "block, and a copy of one block at most when their ways part.",
)
def share_blocks(blocks, size, events):
    """Hand out ``blocks`` blocks of ``size`` tokens to sequences that share them, and copy a block on write.

    ``events`` come in this order: ("append", name, tokens): so many tokens more for a sequence, which may be new;
    ("fork", name, new): a sequence ``new`` begins with all that ``name`` has, in the same blocks; ("drop", name,
    tokens): the last so many tokens are taken back, and blocks in which none is left (a draft was wrong); ("end",
    name): it is gone.

    An append writes into the last block if that has room, and takes more where it must. If the block that it writes
    into is in another table too, a copy takes its place first of all. Take the free block with the smallest number. If
    an append needs more blocks than are free, it is refused: nothing changes, and a new name is not there.

    Return (tables, references, copies, refused), as they are after the last event: name -> list of blocks; for each
    block, how many tables name it; all copies, (from, to) each; and which events were refused, counted from 0.
    """
    tables, lengths, references = {}, {}, [0] * blocks
    copies, refused = [], []

    def needed(tokens):
        return -(-tokens // size)

    # -
    def take():
        block = references.index(0)
        references[block] = 1
        return block

    # .
    for number, (what, name, *more) in enumerate(events):
        # ? fork: who has the blocks now?  drop, end: and who no longer?
        # ? append: is a copy needed, how many blocks are, are they there?
        if what == "fork":
            (new,) = more
            tables[new], lengths[new] = [*tables[name]], lengths[name]
            for block in tables[name]:
                references[block] += 1
        elif what in ("drop", "end"):
            lengths[name] -= more[0] if more else lengths[name]
            kept = needed(lengths[name])
            for block in tables[name][kept:]:
                references[block] -= 1
            del tables[name][kept:]
            if what == "end":
                del tables[name], lengths[name]
        else:
            (tokens,) = more
            table, length = tables.get(name, []), lengths.get(name, 0)
            shared = tokens > 0 and length % size > 0 and references[table[-1]] > 1
            new = needed(length + tokens) - len(table)
            if new + shared > references.count(0):
                refused.append(number)
                continue
            if shared:
                old, table[-1] = table[-1], take()
                references[old] -= 1
                copies.append((old, table[-1]))
            table += [take() for _ in range(new)]
            tables[name], lengths[name] = table, length + tokens
    return tables, references, copies, refused
