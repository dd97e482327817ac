"""Kernels as answers: without Triton they are not judged, with it they run in a process of their own; and the solution
compiles for GPUs that are not here."""

import os
import subprocess
import sys

import pytest
import torch
from lab.registered import solved

from tinydist.lab import judge, triton_answers
from tinydist.lab.exercise import Mistake
from tinydist.lab.judging import judge_isolated
from tinydist.syllabus.registry import find

NEEDS_TRITON = pytest.mark.skipif(bool(triton_answers.unavailable()), reason=triton_answers.unavailable())


@pytest.mark.parametrize("how", [judge, lambda answer: judge_isolated(answer, find(answer))])
def test_without_triton_nothing_is_judged_and_the_verdict_says_so(monkeypatch, how):
    monkeypatch.setattr(triton_answers, "INSTALLED", False)
    verdict = how(solved("flash_kernel"))
    assert verdict.state == "not judged" and not verdict.passed
    assert str(verdict).startswith("flash_kernel: not judged\n\nTriton is not installed, so no kernel can run here")


@NEEDS_TRITON
def test_the_interpreter_has_to_be_requested_first(monkeypatch):
    from tinydist.attention.kernels import tiles

    monkeypatch.setattr(tiles, "INTERPRETED", type("No", (), {"value": False}))
    assert "restart its kernel" in triton_answers.unavailable()


@NEEDS_TRITON
def test_kernels_run_in_a_process_of_their_own():
    exercise = find("flash_kernel")
    assert judge_isolated(solved("flash_kernel"), exercise).passed
    wrong = judge_isolated(exercise.variant(exercise.mistakes[0]), exercise)
    assert exercise.mistakes[0].words in str(wrong.wrong)


@NEEDS_TRITON
def test_a_decorated_answer_is_the_same():
    import triton

    assert judge(triton.jit(solved("flash_kernel"))).passed


@NEEDS_TRITON
@pytest.mark.parametrize(
    "line, said",
    [("raise NotImplementedError", "not yet"), ("queries = lost", "NameError: name 'lost' is not defined")],
)
def test_an_error_is_the_answers_own(line, said):
    first = "    maximum = tl.full("
    answer = find("flash_kernel").variant(Mistake("", (first, f"    {line}\n{first}"), False))
    assert said in str(judge(answer))


SCALED, RESCALED = ".trans(keys)) * scale", "output * shrink[:, None] + tl.dot(weights, values)"
REASONS = {
    "not multiplied by": (SCALED, ".trans(keys))"),
    "lack the log2(e)": ("tl.exp(", "tl.exp2("),
    "does not load row 0 of k": ("range(0, stop, N)", "range(N, stop, N)"),
    "-inf - -inf is NaN": ("range(0, stop, N)", "range(N * ((stop - 1) // N + 1), -1, -N)"),
    "The total is not rescaled": ("total * shrink", "total"),
    "rescaled after the tile is added": (RESCALED, "(output + tl.dot(weights, values)) * shrink[:, None]"),
    "over the last tile alone": ("        maximum = higher\n", ""),
    "The causal mask is missing": ("            seen = seen &", "            seen = seen | "),
    "rows 32 to 47 of v, which has 40": ("v + at, mask=inside, other=0.0", "v + at"),
    "stores nothing in row 0": ("    tl.store(", "    # tl.store("),
    "stores beyond the last query": ("total[:, None], mask=(rows < T)[:, None])", "total[:, None])"),
}


@NEEDS_TRITON
@pytest.mark.parametrize("told, edit", REASONS.items(), ids=REASONS)
def test_the_reason_is_told(told, edit):
    verdict = judge(find("flash_kernel").variant(Mistake("", edit, False)))
    assert verdict.state == "wrong" and told in str(verdict.wrong)


def test_rows_around_a_tensor_are_there():
    inside, (before, after) = triton_answers.guarded(torch.ones(2, 3))
    assert inside.eq(1).all() and inside.is_contiguous()
    assert before.isnan().all() and after.isnan().all() and len(before) == len(after) == triton_answers.GUARD


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from tinydist.syllabus.registry import find

kernel = triton.jit(find("flash_kernel").reference)
types = dict(q="*fp32", k="*fp32", v="*fp32", out="*fp32", T="i32", S="i32", scale="fp32")
sizes = dict(causal={causal}, D=64, M=64, N=64)
signature = types | dict.fromkeys(sizes, "constexpr")
source = ASTSource(kernel, signature, {{(kernel.arg_names.index(n),): x for n, x in sizes.items()}})
for architecture in (80, 90):
    print(len(triton.compile(source, GPUTarget("cuda", architecture, 32)).asm["cubin"]) > 0)
"""


@NEEDS_TRITON
@pytest.mark.parametrize("causal", [False, True])
def test_the_solution_compiles_for_gpus(causal):
    """In a process of its own: in this one kernels are interpreted."""
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE.format(causal=causal)], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["True", "True"], done.stderr
