"""A chain of operators as kernels, and the bytes that they move."""

from random import Random

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED


def case(about, nbytes, *operators):
    return alone(lambda: (nbytes, list(operators)), about)


def drawn(seed, length):
    random = Random(seed)
    operators, nbytes = [], 4096
    for _ in range(length):
        kind = random.choice(["pointwise", "pointwise", "pointwise", "reduce", "matmul"])
        nbytes = max(64, nbytes // 8) if kind == "reduce" else nbytes
        operators.append((kind, random.choice([0, 0, 512]), nbytes, random.random() < 0.25))
    return case(f"{length} operators, drawn with seed {seed}", 4096, *operators)


def test_cases():
    yield case("one operator", 4096, ("pointwise", 0, 4096, False))
    yield case("two pointwise operators", 4096, ("pointwise", 0, 4096, False), ("pointwise", 128, 4096, False))
    yield case("two matmuls", 4096, ("matmul", 8192, 2048, False), ("matmul", 8192, 4096, False))
    yield case(
        "behind a sum over rows",
        4096,
        ("pointwise", 0, 4096, False),
        ("reduce", 0, 64, False),
        ("pointwise", 0, 64, False),
    )
    yield case("a result that is kept", 4096, ("pointwise", 0, 4096, True), ("pointwise", 0, 4096, False))
    for seed in range(6):
        yield drawn(seed, 9)


@exercise(
    title="Fuse a chain, and count its bytes",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("your own fusion", INSTEAD, SOLVED),
        Values(
            "the kernel of each operator, and the bytes of all; chains of 1 to 9 operators",
            names=("the kernels", "the bytes moved"),
        ),
    ],
    mistakes=[
        mistake("A matmul is a kernel of its own: nothing joins it", ' or "matmul" in (kind, before))', ")"),
        mistake(
            "What stands behind a reduction begins a new kernel: its loops are other ones",
            'before in (None, "reduce")',
            "before is None",
        ),
        mistake("Each kernel writes what its last operator makes", "if last or kept", "if kept"),
        mistake(
            "A result that is kept is written, even if the next operator is in the same kernel", "last or kept", "last"
        ),
        mistake("A kernel reads what the operator before its first one has made", "moved += nbytes", "pass"),
        mistake(
            "Other inputs are read from memory in any kernel, fused or not", "moved += extra", "moved += extra * begins"
        ),
    ],
    hints=[
        "Go through the chain once, and remember the kind of the operator before. When does a new kernel begin?",
        "Bytes are read at the beginning of a kernel and written at its end. In between there are only other inputs, "
        "and results that are kept.",
        "An operator is the last of its kernel if it is the last of all, or if the next one begins a kernel.",
    ],
    why="A result that is kept for backward is written even where it is fused, so a training step gains less than "
    "inference does. That is why compilers compute it again in backward, where it is cheap: recomputation and fusion "
    "are one decision.",
)
def fuse_chain(nbytes, operators):
    """Return (kernels, moved): for each operator the number of its kernel, from 0 on, and the bytes of all kernels.

    The first operator reads ``nbytes`` bytes, each other one what the operator before has made. An operator is
    (kind, extra, made, kept): "pointwise", "reduce" (over rows) or "matmul"; the bytes of its other inputs; those
    of its result; and whether something later needs this result, so that it must be written. Pointwise operators and a
    reduction join the kernel before them, but nothing joins a reduction or a matmul, and a matmul joins nothing.
    """
    # ? Where does a kernel begin?
    before, starts = None, []
    for kind, *_ in operators:
        starts.append(before in (None, "reduce") or "matmul" in (kind, before))
        before = kind
    kernels = [sum(starts[: place + 1]) - 1 for place in range(len(operators))]
    # ? What does it read and write?
    moved = 0
    for begins, last, (_, extra, made, kept) in zip(starts, [*starts[1:], True], operators):
        if begins:
            moved += nbytes
        moved += extra
        if last or kept:
            moved += made
        nbytes = made
    return kernels, moved
