"""A cache in blocks that samples share, with three bugs: freed too early, a wrong last one, a shared one written."""

import torch

from tinydist.lab.author import Own, Part, Wrong, alone, exercise, kind, mistake

from .chapter import SOLVED, events_of

CASES = [  # about, blocks, size, calls
    ("one sequence", 3, 4, "a+3 a? a+3 a?"),
    ("one sequence that fills its blocks", 2, 4, "a+8 a?"),
    ("blocks of one token", 4, 1, "a+3 b=a b+1 b? a?"),
    ("two samples, and both write", 3, 4, "a+6 b=a a+2 b+2 a? b?"),
    ("two samples of a full block, float64", 4, 3, "a+6 b=a b+2 a+1 a? b?"),
    ("a sample ends, and another request comes", 4, 4, "a+6 b=a a. c+5 b? c? b+1 c. b?"),
    ("three samples, two of which end", 7, 2, "a+3 b=a c=b b+4 c+1 c? b. a+3 a? a. d+6 c? d?"),
    ("a copy, and another request comes", 4, 4, "a+6 b=a a+1 c+4 b? c? a?"),
    ("a fork of a copy", 4, 4, "a+5 b=a b+1 c=b c+1 b+1 c? b? a?"),
    ("all the memory, again and again", 2, 4, "a+7 a? a. b+7 b? b. c+7 c? c."),
    ("one block, again and again", 1, 4, "a+3 a? a. b+2 b?"),
    ("an empty pool", 0, 4, "a+0 b=a b? a."),
]


def test_cases():
    for about, blocks, size, calls in CASES:
        given = about, blocks, size, calls
        yield alone(lambda given=given: made(*given), f"{about} ({calls}), {blocks} blocks of {size}")


def made(about, blocks, size, calls):
    dtype, generator = torch.float64 if "float64" in about else torch.float32, torch.Generator().manual_seed(blocks)
    memory = torch.full((blocks, size), 99.0, dtype=dtype)
    return memory, [
        ("write", each[1], torch.randn(each[2], generator=generator, dtype=dtype)) if each[0] == "add" else each
        for each in events_of(calls)
    ]


class Watched(list):
    """Calls, which look into ``memory`` when they come to a read: where are the tokens by then?"""

    def __init__(self, calls, memory):
        super().__init__(calls)
        self.memory = memory
        self.at = {number: "all in memory" for number, call in enumerate(calls) if call[0] == "read"}

    def __iter__(self):
        for number, call in enumerate(super().__iter__()):
            if call[0] == "read" and call[1] in (tokens := left(self[:number])):
                self.at[number] = where(tokens[call[1]], self.memory)
            yield call


def read(answer, memory, calls):
    watched = Watched(calls, memory)
    found = answer(memory, watched)
    reads = [f"read {i}, of {call[1]}" for i, call in enumerate(call for call in calls if call[0] == "read")]
    if not isinstance(found, tuple | list) or len(found) != len(reads):
        what = f"a list of {len(found)}" if isinstance(found, tuple | list) else kind(found)
        raise Wrong(f"it returned {what}, where a list of {len(reads)} is right, a tensor for each read")
    for name, each in zip(reads, found):
        if not isinstance(each, torch.Tensor) or each.dim() != 1:
            raise Wrong(f"{name} gives {kind(each)}, where a tensor of one dim is right")
    lengths = {f"length of {name}": len(each) for name, each in zip(reads, found)}
    there = {f"blocks of {name} in the end": where(tokens, memory) for name, tokens in left(calls).items()}
    before = {f"blocks of {name} when it is asked for": each for name, each in zip(reads, watched.at.values())}
    return lengths | {f"tokens of {name}": each for name, each in zip(reads, found)} | before | there


def left(calls):
    """Tokens of the sequences that are there in the end."""
    tokens = {}
    for what, name, *more in calls:
        if what == "write":
            tokens[name] = [*tokens.get(name, []), *more[0]]
        elif what == "fork":
            tokens[more[0]] = [*tokens[name]]
        elif what == "end":
            del tokens[name]
    return {name: torch.stack(each) for name, each in tokens.items() if each}


def where(tokens, memory):
    parts = tokens.split(memory.shape[1])
    found = [any(torch.equal(block[: len(part)], part) for block in memory) for part in parts]
    return "all in memory" if all(found) else f"{found.count(False)} of {len(found)} are not in memory"


ONE_LESS = """\
                references[block] -= 1
                if references[block] == 0:
                    free.append(block)
"""


@exercise(
    title="Find three bugs in a cache of blocks",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=read,
    targets=[
        Own("tensors and lists, not the library's", "mend what is given", SOLVED),
        Part("lengths", "length", "as many tokens are read as were written", scratch=True),
        Part("values", "tokens", "and they are its own, whoever shares its blocks, or once did", scratch=True),
        Part("memory", "blocks of", "where all tokens of a sequence are", scratch=True),
    ],
    mistakes=[
        mistake(
            "The last block is full, and none of it is read: a length that is a multiple of size leaves 0 tokens for "
            "it by %, where it has all",
            "filled = (lengths[name] - 1) % size + 1",
            "filled = lengths[name] % size",
            given=True,
        ),
        mistake(
            "Two have the block that one of them writes into, and the other reads what it wrote. With a second owner a "
            "block is shared, and it needs a copy",
            "elif references[table[-1]] > 1:",
            "elif references[table[-1]] > 2:",
            given=True,
        ),
        mistake(
            "A block is free while another still has it: the next who takes it writes over what is read there. It is "
            "free when nobody has it",
            ONE_LESS,
            "                references[block] -= 1\n                free.append(block)\n",
            given=True,
        ),
        mistake(
            "The block that was copied is given back to the free ones, and others still have it",
            "                    references[table[-1]] -= 1\n",
            "                    references[table[-1]] -= 1\n                    free.append(table[-1])\n",
        ),
        mistake(
            "The copy is empty: what is in the old block has to be there, too",
            "                    memory[copy] = memory[table[-1]]\n",
            "",
        ),
        mistake(
            "The last block is read to its end, though some of its slots are not written",
            "filled = (lengths[name] - 1) % size + 1",
            "filled = size",
        ),
        mistake(
            "Memory runs out: a block is taken that is not needed, or one that nobody has is not free. Count owners: "
            "after a copy the old block has one less, and the copy has one",
            "references[copy] = 1",
            "references[copy] = 2",
        ),
        mistake(
            "What a read of one block gave is a view of the memory, and changes when the block is written again: give "
            "a copy",
            "torch.cat(parts) if parts",
            "torch.cat(parts) if len(parts) > 1 else parts[0] if parts",
        ),
    ],
    hints=[
        "Run check with the stub. It is wrong with one sequence alone: what do 8 tokens in blocks of 4 have in their "
        "last block?",
        "Follow the references. After a fork each block has two owners. Who may write then, and what does the other "
        "read?",
        "And when one of the two ends: which of its blocks may be somebody else's next?",
    ],
    why="None of the three fails where it is wrong: a request reads tokens of somebody else, or misses its last ones, "
    "and goes on in fluent text. They show only where lengths meet the block size, and sequences meet in a block.",
)
def mended_blocks(memory, calls):
    """Mend this cache of blocks: it has three bugs.

    ``memory`` is [blocks, size], of numbers that stand for keys and values. ``calls`` come in this order: ("write",
    name, tokens), a tensor of tokens behind those that the sequence has, which may be new; ("fork", name, new), a
    sequence ``new`` begins with all that ``name`` has, in the same blocks; ("end", name), its blocks are free if
    nobody else has them; ("read", name), its tokens are asked for.

    Return a list: what each read gives, a tensor of all tokens of the sequence. Tokens are kept in ``memory``, in
    blocks, and nowhere else. There is memory enough, if blocks are shared until somebody writes into them, and free as
    soon as nobody has them.
    """
    size, free = memory.shape[1], list(range(len(memory)))
    tables, lengths, references, found = {}, {}, [0] * len(memory), []
    for what, name, *more in calls:
        if what == "write":
            table = tables.setdefault(name, [])
            lengths.setdefault(name, 0)
            for token in more[0]:
                slot = lengths[name] % size
                if slot == 0:
                    table.append(free.pop())
                    references[table[-1]] = 1
                elif references[table[-1]] > 1:
                    copy = free.pop()
                    memory[copy] = memory[table[-1]]
                    references[table[-1]] -= 1
                    references[copy] = 1
                    table[-1] = copy
                memory[table[-1], slot] = token
                lengths[name] += 1
        elif what == "fork":
            (new,) = more
            tables[new], lengths[new] = [*tables[name]], lengths[name]
            for block in tables[new]:
                references[block] += 1
        elif what == "end":
            for block in tables.pop(name):
                references[block] -= 1
                if references[block] == 0:
                    free.append(block)
            del lengths[name]
        else:
            filled = (lengths[name] - 1) % size + 1
            parts = [memory[block] for block in tables[name]]
            parts[-1:] = [last[:filled] for last in parts[-1:]]
            found.append(torch.cat(parts) if parts else memory.new_empty(0))
    return found
