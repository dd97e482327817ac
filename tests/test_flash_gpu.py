"""The comparison on GPUs, on processors: what it counts, whom it asks, how it says what was refused."""

import pytest
import torch

from benchmarks import flash_gpu


def seconds(call):
    """No clock: forward takes a second, backward two."""
    call()
    return [1.0 if not torch.is_grad_enabled() else 2.0] * 3


def test_flops_are_those_of_the_products():
    assert flash_gpu.flops(2, 3, 10, 4, causal=False) == (2 * 3 * 4 * 10 * 10 * 4, 2 * 3 * 10 * 10 * 10 * 4)
    assert flash_gpu.flops(1, 1, 8, 16, causal=True)[0] == flash_gpu.flops(1, 1, 8, 16, causal=False)[0] / 2


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_all_lengths_have_as_many_tokens(dim):
    shapes = [flash_gpu.shape(length, dim) for length in flash_gpu.LENGTHS]
    assert {batch * tokens for batch, _, tokens, _ in shapes} == {16_384}
    assert {heads * width for _, heads, _, width in shapes} == {2_048}


def test_who_is_compared_depends_on_what_is_installed():
    nothing = flash_gpu.contenders(found=lambda module: None)
    assert list(nothing) == [f"SDPA {name}" for name in flash_gpu.BACKENDS]
    everything = list(flash_gpu.contenders(found=lambda module: module))
    assert everything[0] == "tinydist" and everything[-2:] == ["SDPA FA3", "flash-attn"]


def test_a_backend_that_refuses_is_named_with_its_reason(monkeypatch):
    monkeypatch.setattr(flash_gpu, "shape", lambda length, dim: (1, 1, length, dim))  # those of GPUs take gigabytes

    def refuses(q, k, v, causal):
        raise RuntimeError("takes no float32\nand more")

    options = flash_gpu.asked(["--dims", "16", "--dtypes", "float32"])
    runs = {"SDPA MATH": flash_gpu.contenders()["SDPA MATH"], "other": refuses}
    table = "\n".join(flash_gpu.tables(options, "cpu", seconds, lengths=(16,), runs=runs))
    assert "float32, d = 16: TFLOP/s" in table and "float32, d = 16, causal: TFLOP/s" in table
    assert table.count("| tokens | SDPA MATH | other | of FA2 |") == 2
    assert table.count("| 16 | 0 / 0 | – | – |") == 2
    assert "other: takes no float32" in table and "and more" not in table


def test_the_part_of_flash_attention_2():
    found = {flash_gpu.OURS: [350.0, 200.0], flash_gpu.REFERENCE: [500.0, 400.0]}
    assert flash_gpu.part(found) == "0.70 / 0.50"
    assert flash_gpu.part({flash_gpu.OURS: "refused"}) == "–"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_lists_what_it_would_compare(capsys):
    flash_gpu.main(flash_gpu.asked(["--dims", "64"]))
    said = capsys.readouterr().out
    assert said.startswith("No GPU is here. On one, this would compare, for d = 64 in bfloat16, float16:")
    assert "  SDPA CUDNN_ATTENTION\n" in said
