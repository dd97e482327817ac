"""A prefix cache: full blocks are found again by all tokens up to their end, in the memory that is free."""

from random import Random

from tinydist.lab.author import Own, Part, Wrong, alone, exercise, kind, mistake

from .chapter import SOLVED

CASES = [  # about, blocks, size, events: a=..., a begins with this prompt, a letter for each token; a. ends
    ("one request", 4, 4, "a=abcdefghi"),
    ("the document's example", 10, 4, "a=abcdefghijklmno b=abcdefghijpqrs"),
    ("a whole prompt again", 6, 4, "a=abcdefgh b=abcdefgh"),
    ("less than a block in common", 4, 4, "a=abcdef b=abczzz"),
    ("a block in the middle", 6, 2, "a=abcdef b=xxcdef"),
    ("the same block twice", 6, 2, "a=ababx b=ababx"),
    ("one that has ended", 4, 2, "a=abcde a. b=abcdx"),
    ("one that has ended, and memory is used again", 5, 2, "a=abcdef a. b=uvwxy c=abx"),
    ("both have it, and one ends", 6, 2, "a=abcde b=abcdx a. c=yyyy d=abz"),
    ("a block that is found is no longer free", 4, 2, "a=abcd a. b=abx c=uvw"),
    ("a block that is taken forgets", 2, 2, "a=ab a. b=uuu b. c=abx"),
    ("blocks of one token", 5, 1, "a=abc a. b=abx b. c=abcd"),
    ("two that have the same last block, and a third", 8, 2, "a=abcd b=abcd c=abcde"),
    ("no prompt in common, a full pool", 3, 2, "a=ab b=cd c=ef a. d=gh"),
]


def drawn(seed):
    """Prompts of few letters, which begin alike; of three that run the oldest ends."""
    draw, events, running = Random(seed), [], []
    size = draw.randint(1, 3)
    for name in "abcdefghijklmn":
        prompt = "abcdefgh"[: draw.randint(0, 8)] + "".join(draw.choice("xy") for _ in range(draw.randint(1, 5)))
        events.append(f"{name}={prompt}")
        running.append(name)
        if len(running) == 3:
            events.append(f"{running.pop(draw.randint(0, 1))}.")
    return "drawn", -(-42 // size) if draw.random() < 0.5 else 45, size, " ".join(events)


def events_of(text):
    for each in text.split():
        yield ("end", each[0]) if each[1] == "." else ("begin", each[0], [ord(letter) - 96 for letter in each[2:]])


def test_cases():
    for about, blocks, size, events in [*CASES, *map(drawn, range(8))]:
        given = blocks, size, [*events_of(events)]
        yield alone(lambda given=given: (*given[:2], [*given[2]]), f"{about} ({events}), {blocks} blocks of {size}")


def as_texts(answer, blocks, size, events):
    """Each is compared as a whole."""
    found = answer(blocks, size, events)
    if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[1], dict):
        raise Wrong(f"it returned {kind(found)}, where a list and a dict are right: found, tables")
    counts, tables = found
    return {"found": str([*counts]), "tables": str({name: [*table] for name, table in sorted(tables.items())})}


BACK, BACKED = "queue.append(block)\n", "                    queue.append(block)\n"
KEPT = "content[block] = tuple(prompt[:end]) if end <= len(prompt) else None"
VARIANTS = [
    (
        "Blocks go to the end of the queue when a request ends: here they go to its front",
        BACK,
        "queue.insert(0, block)\n",
    ),
    (
        "What is in a block can be found after its request has ended, until it is taken for something else",
        BACKED,
        BACKED + "                    content[block] = None\n",
    ),
    ("Tokens are asked for: these are blocks", "found.append(len(table) * size)", "found.append(len(table))"),
    (
        "A block was given back while another request has it: it goes back when nobody has it",
        "if owners[block] == 0:\n                    queue",
        "if block not in queue:\n                    queue",
    ),
    (
        "Of several blocks with the same tokens the smallest number is found: this is the largest",
        "content.index(key)",
        "len(content) - 1 - content[::-1].index(key)",
    ),
    (
        "The tokens that were computed are told: those that need not be are asked for",
        "found.append(len(table) * size)",
        "found.append(len(prompt) - len(table) * size)",
    ),
    (
        "Only blocks of requests that run are found: those of ended ones lie in the queue, and can be, too",
        "if key not in content:",
        "if key not in content or owners[content.index(key)] == 0:",
    ),
    (
        "Only blocks of requests that have ended are found: those of running ones can be shared, too",
        "if key not in content:",
        "if key not in content or owners[content.index(key)] > 0:",
    ),
    (
        "The free block with the smallest number is taken: take the one at the front of the queue",
        "queue.pop(0)",
        "queue.pop(queue.index(min(queue)))",
    ),
]


@exercise(
    title="What a prefix cache finds",
    minutes=30,
    difficulty=3,
    test_cases=test_cases,
    program=as_texts,
    targets=[
        Own("built by yourself", "here it is for you to build", SOLVED),
        Part(
            "found",
            "found",
            "tokens whose keys and values are there: of full blocks, and all tokens before alike",
            variants=VARIANTS,
        ),
        Part(
            "tables", "tables", "blocks in the queue's order, and last to first when a request ends", variants=VARIANTS
        ),
    ],
    mistakes=[
        mistake(
            "A block is found by its own tokens alone. Its keys and values also depend on all tokens before it",
            "key = tuple(prompt[:end])",
            "key = tuple(prompt[end - size : end])",
            "tuple(prompt[:end]) if",
            "tuple(prompt[end - size : end]) if",
        ),
        mistake(
            "The last token of a prompt was looked up, too. The model has to compute it: its row gives the next token",
            "range(size, len(prompt), size)",
            "range(size, len(prompt) + 1, size)",
        ),
        mistake(
            "A block behind one that is missing was found: its keys and values are of another beginning",
            "                break\n",
            "                continue\n",
            "key = tuple(prompt[:end])",
            "key = tuple(prompt[end - size : end])",
            "tuple(prompt[:end]) if",
            "tuple(prompt[end - size : end]) if",
        ),
        mistake(
            "A block that was found is still in the queue of free ones: the next request takes and overwrites it",
            "                queue.remove(block)\n",
            "                pass\n",
        ),
        mistake(
            "A block that was taken anew is still found by what it held before",
            "else None",
            "else content[block]",
        ),
        mistake(
            "A block was given back while another request has it: count how many have it",
            "owners[block] -= 1",
            "owners[block] = 0",
        ),
        mistake(
            "The first block was given back first, so it is overwritten first. Others may begin with it: last to first",
            "reversed(tables.pop(name))",
            "tables.pop(name)",
        ),
        mistake(
            "The block that was given back last is taken first. Take the one that has been free for longest",
            "queue.pop(0)",
            "queue.pop()",
        ),
    ],
    hints=[
        "What must be equal for two blocks to hold the same keys and values? All tokens from the beginning to the end "
        "of the block: tuple(prompt[:end]) is a key, and needs no hash.",
        "A block is in the queue exactly while nobody has it. There it keeps its key until it is taken from the front.",
        "range(size, len(prompt), size) gives the ends of all blocks that may be looked up: the last token is in none.",
    ],
    why="The cache costs no memory, since it lies in what is free, and what was free longest is lost first. It finds "
    "only what begins alike: one word that differs at the start of a prompt, a date for example, and nothing is found.",
)
def find_prefixes(blocks, size, events):
    """Build a prefix cache: say how many tokens of each prompt need not be computed, and which blocks each request has.

    Memory has ``blocks`` blocks of ``size`` tokens. All are in a queue at first, 0 at its front. ``events`` come in
    this order: ("begin", name, prompt), a request with a prompt, a list of at least one token, and ("end", name).

    A request that begins looks up the full blocks of its prompt without the last token, the first one first. A block is
    found if it holds the same tokens and all tokens before it were the same; if several do, take the smallest number.
    At the first that is not found the search ends. A block that nobody has leaves the queue when it is found. For the
    rest of the prompt blocks are taken from the front of the queue. Then all full blocks of the prompt can be found by
    others, until they are taken for something else. When a request ends, its blocks go to the end of the queue, the
    last one first, except those that others have. There is memory enough.

    Return (found, tables): how many tokens each request found, in the order in which they began; and for each request
    that has not ended, name -> list of blocks.
    """
    # ? what is known of each block: who has it, and what is in it?
    # ? begin: what is found, and what is taken?  end: what goes back?
    queue, owners, content = list(range(blocks)), [0] * blocks, [None] * blocks
    found, tables = [], {}
    for what, name, *more in events:
        if what == "end":
            for block in reversed(tables.pop(name)):
                owners[block] -= 1
                if owners[block] == 0:
                    queue.append(block)
            continue
        (prompt,) = more
        table = tables[name] = []
        for end in range(size, len(prompt), size):
            key = tuple(prompt[:end])
            if key not in content:
                break
            block = content.index(key)
            if owners[block] == 0:
                queue.remove(block)
            owners[block] += 1
            table.append(block)
        found.append(len(table) * size)
        while len(table) * size < len(prompt):
            end = (len(table) + 1) * size
            block = queue.pop(0)
            owners[block] = 1
            content[block] = tuple(prompt[:end]) if end <= len(prompt) else None
            table.append(block)
    return found, tables
