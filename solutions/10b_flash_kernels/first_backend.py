"""Attention by the first backend of a list that can take the inputs, and the name of the one that ran."""

import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from tinydist.lab.author import Part, Wrong, alone, exercise, kind, mistake

FLASH, MATH = SDPBackend.FLASH_ATTENTION, SDPBackend.MATH
OTHERS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]


class Operators(TorchDispatchMode):
    """What ran, by the operators that did."""

    def __init__(self):
        super().__init__()
        self.ran = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        name = operator.__name__
        if "flash_attention" in name:
            self.ran.append(FLASH.name)
        elif name.startswith("_safe_softmax") or name.startswith("_softmax"):
            self.ran.append(MATH.name)
        return operator(*args, **(kwargs or {}))


def case(about, wanted, queries=6, keys=6, width=4, heads=2, flat=False, mask=None, **options):
    """``width``: of the values. ``flat``: without a dim for the heads. ``mask``: its number of dims."""

    def given():
        generator = torch.Generator().manual_seed(1)
        shapes = (heads, queries, 4), (2, keys, 4), (2, keys, width)
        q, k, v = (torch.randn(1, *shape, generator=generator) for shape in shapes)
        if flat:
            q, k, v = q[0], k[0], v[0]
        seen = {} if mask is None else {"attn_mask": torch.ones(queries, keys).tril()[(None,) * (mask - 2)].log()}
        return list(wanted), q, k, v, options | seen

    return alone(given, f"{', '.join(each.name for each in wanted)} wanted, and {about}")


def test_cases():
    yield case("inputs that both can take", [FLASH, MATH])
    yield case("values that are wider than the keys", [FLASH], width=7)
    yield case("inputs that both can take", [MATH, FLASH])
    yield case("as many queries as keys, causal", [FLASH], is_causal=True)
    yield case("values that are wider than the keys", [FLASH, MATH], width=7)
    yield case("a mask of 3 dims", [FLASH, MATH], mask=3)
    yield case("a mask of 2 dims", [FLASH, MATH], mask=2)
    yield case("tensors without a dim for the heads", [FLASH, MATH], flat=True)
    yield case("four query heads for two of the keys", [FLASH, MATH], heads=4, enable_gqa=True)
    yield case("two that need a GPU", [*OTHERS, FLASH])
    yield case("two that need a GPU", OTHERS)
    yield case("a scale of 1", [MATH], scale=1.0)


def observed(answer, wanted, q, k, v, options):
    """With what really ran."""
    with warnings.catch_warnings(), Operators() as operators:
        warnings.simplefilter("ignore")  # PyTorch's words about each backend that refuses
        returned = answer(wanted, q, k, v, options)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise Wrong(f"it returned {kind(returned)}, where a pair is right: the output and the name of the backend")
    out, name = returned
    return {"out": out, "name": name, "ran": ", ".join(operators.ran) or "nothing"}


ONE, NONE = "sdpa_kernel(backend)", "    return None, None"


@exercise(
    title="The backend that you want, or none",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    program=observed,
    targets=[
        Part(
            "kernel",
            "ran",
            "what ran, by its operators, is the first of the list that can take the inputs, and once. No backend "
            "that is not in the list runs",
        ),
        Part("name", "name", "the name of that backend; None where none of the list can"),
        Part("output", "out", "attention, with the options; None where none of the list can"),
    ],
    mistakes=[
        mistake(
            "FLASH_ATTENTION runs where MATH stands first in the list. If several are allowed at once, or all are, "
            "PyTorch chooses in its own order: allow one at a time",
            ONE,
            "sdpa_kernel(wanted)",
        ),
        mistake(
            "MATH computes it, which is not in the list: that is the silent fallback. Who allowed it?",
            NONE,
            "    with sdpa_kernel(MATH):\n        return F.scaled_dot_product_attention(q, k, v, **options), MATH.name",
        ),
        mistake("The options are not passed on", ", **options)", ")"),
        mistake(
            "It goes on after the first that has run: stop there, and return what it gave",
            "return F.scaled_dot_product_attention(q, k, v, **options), backend.name",
            "found = F.scaled_dot_product_attention(q, k, v, **options), backend.name",
            "    for backend",
            "    found = None, None\n    for backend",
            NONE,
            "    return found",
        ),
        mistake(
            "This is the first of the list, whether it could take the inputs or not: name the one that ran",
            "**options), backend.name",
            "**options), wanted[0].name",
        ),
        mistake(
            "A backend that cannot take the inputs raises a RuntimeError: catch it, and try the next one",
            "except RuntimeError:\n            continue",
            "finally:\n            pass",
        ),
    ],
    hints=[
        "`with sdpa_kernel(backend):` allows this one only. What does PyTorch do inside of it when the backend cannot "
        "take the inputs?",
        "It raises a RuntimeError. So try them one after the other, in their order: try, except RuntimeError, "
        "continue.",
        "backend.name is the text that is asked for. After the loop nothing has fitted: return None, None.",
    ],
    why="SDPA falls back silently, and MATH writes the squares of scores to memory: a mask with one dim too many is "
    "enough. So training code that counts on flash attention allows it alone, and an error names the input that it "
    "can't take.",
)
def first_backend(wanted, q, k, v, options):
    """Compute attention by the first backend of a list that can take the inputs, and say which one ran.

    ``wanted`` is a list of backends, such as [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], in the order in which they
    are preferred. ``options`` are keyword arguments of F.scaled_dot_product_attention. Return (output, name of the
    backend that ran), and (None, None) if none of the list can take the inputs. The tensors are on the CPU, in float32.
    """
    # ? Which context restricts the choice, and to how many of them at a time?
    # ? How do you notice that a backend can't take the inputs?
    for backend in wanted:
        try:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, **options), backend.name
        except RuntimeError:
            continue
    return None, None
