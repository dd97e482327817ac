"""Our decoder beside llama.cpp's: its logits for our files, and its quantizers' error beside ours.

    python benchmarks/beside_llama_cpp.py [--seeds 5] [--steps 400] [--models FOLDER] [--write]

The decoders of ``quantization.py``, trained, as files of ``save_llama``. What is measured, by kind:

    logits       the largest difference from llama.cpp's, of 64 tokens of text that was held out, 256 logits each
    near         how many of these tokens have all logits within 1e-4
    tokens       how many of 128 tokens that both write greedily are the same, counted up to the first that is not
    same bytes   in how many weights the file that llama.cpp quantizes (by llama_model_quantize) has our blocks
    error        |w - rounded| / |w| of a weight, by our quantizer and by llama.cpp's
    weighted     the same with each difference times |w|: in blocks of 256, llama.cpp's weigh errors of large w more
    perplexity   on text that was held out, with the weights of each; x in fp32

llama.cpp keeps keys and values in fp32 here (its default is fp16), and adds with one thread. In Q4_1 and in blocks of
256 it rounds x in another way than our ``matmul``. Controls, both held against ours or llama.cpp's in the same way:

    as ggml      ours, with x rounded as ggml rounds it
    last bits    ours beside itself with other last bits in the embedding: codes of x near a half go the other way

Needs llama-cpp-python. ``--write`` puts the table where notebook 21b reads it.
"""

import argparse
import copy
import itertools
import statistics
import tempfile
from pathlib import Path

import llama_cpp
import torch
import torch.nn.functional as F

from benchmarks import csv_rows
from benchmarks.quantization import LENGTH, held_out, linears, perplexity, trained_or_kept, with_weights
from tinydist.attention.decoder import generate
from tinydist.quantization import FORMATS, in_blocks, load_gguf, matmul, save_llama
from tinydist.quantization.llama_file import IN_A_BLOCK

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "21_llama_cpp.csv"
WRITTEN = 128  # tokens
FTYPES = {  # llama.cpp's name of a recipe; all of a model's matrices in one format: pure
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1,
    "Q5_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_0,
    "Q4_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "Q6_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K,
}


# llama.cpp.


def loaded(path, tokens):
    return llama_cpp.Llama(
        str(path), n_ctx=tokens, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False,
        type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
    )  # fmt: skip


def logits_of(path, tokens):
    """llama.cpp's for each of ``tokens``, [T, V]."""
    llama = loaded(path, len(tokens))
    llama.eval(tokens)
    return torch.from_numpy(llama.scores[: len(tokens)].copy())


def greedy(path, prompt, count):
    llama, new = loaded(path, len(prompt) + count), []
    llama.eval(prompt)
    while len(new) < count:
        new.append(int(llama.scores[llama.n_tokens - 1].argmax()))
        llama.eval(new[-1:])
    return new


def requantized(path, format, to):
    """llama.cpp's own file in ``format``, but for embedding and head."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.pure, params.nthread = FTYPES[format], True, 1
    params.output_tensor_type = params.token_embedding_type = llama_cpp.GGML_TYPE_F32
    failed = llama_cpp.llama_model_quantize(str(path).encode(), str(to).encode(), params)
    assert not failed, f"llama.cpp did not quantize to {format}"
    return load_gguf(to)[0]


# Products as ggml multiplies them: in blocks of 256, x has one scale for 256; beside Q4_1, its sums are in fp16.


def as_ggml(x, weight):
    if weight.format.weights == 256:
        return F.linear(in_q8_k(x), weight.dequantize())
    if weight.format.name == "Q4_1":
        return matmul(x, weight) + rounding_of_sums(x, weight)
    return matmul(x, weight)


def in_q8_k(x):
    """x rounded as ggml's Q8_K (quantize_row_q8_K_ref in ggml-quants.c): the number of largest size becomes -127."""
    blocks = x.unflatten(-1, (-1, 256))
    largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    inverse = -127 / largest
    return ((blocks * inverse).round().clamp(max=127) / inverse).flatten(-2)


def rounding_of_sums(x, weight):
    """What ggml's Q4_1 adds by keeping d times the sum of a block's codes of x in fp16 (Q8_1), times each offset m."""
    blocks = x.unflatten(-1, (-1, 32))
    d = blocks.abs().amax(-1) / 127
    codes = (blocks / d.unsqueeze(-1)).round().sum(-1)
    m = weight.data.view(len(weight.data), -1, 20)[..., 2:4].contiguous().view(torch.float16).squeeze(-1).float()
    return F.linear((d * codes).half().float() - d.half().float() * codes, m)


# What is measured.


@torch.no_grad()
def compared(model, folder):
    """(kind, format, whose, name, value)"""
    tokens, plain = held_out()[0][0], folder / "fp32.gguf"
    save_llama(plain, model, context=LENGTH)
    yield from logits("fp32", plain, {"ours": model}, tokens)
    for format in FORMATS:
        path = folder / f"{format}.gguf"
        models = {
            "ours": in_blocks(copy.deepcopy(model), format),
            "as ggml": in_blocks(copy.deepcopy(model), format, multiply=as_ggml),
        }
        save_llama(path, models["ours"], context=LENGTH)
        yield from logits(format, path, models, tokens)
        yield from quantizers(model, format, load_gguf(path)[0], requantized(plain, format, folder / "theirs.gguf"))


def logits(format, path, models, tokens):
    expected, prompt = logits_of(path, tokens.tolist()), tokens[:16]
    differences = {whose: model(tokens[None])[0] - expected for whose, model in models.items()}
    differences["last bits"] = with_other_last_bits(models["ours"])(tokens[None])[0] - models["ours"](tokens[None])[0]
    for whose, each in differences.items():
        yield "logits", format, whose, "largest difference", each.abs().max().item()
        yield "near", format, whose, f"of {len(tokens)}", (each.abs().amax(-1) < 1e-4).sum().item()
    yield "logits", format, "llama.cpp", "largest", expected.abs().max().item()
    pairs = zip(generate(models["ours"], [prompt], WRITTEN)[0].tolist(), greedy(path, prompt.tolist(), WRITTEN))
    alike = list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    yield "tokens", format, "ours", f"of {WRITTEN}", len(alike)


def with_other_last_bits(model):
    model = copy.deepcopy(model)
    weight = model.embedding.weight
    weight.mul_(1 + 2**-22 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    return model


def quantizers(model, format, ours, theirs):
    names = {
        f"blocks.{n}.{here}": f"blk.{n}.{there}.weight"
        for n in range(len(model.blocks))
        for here, there in IN_A_BLOCK.items()
    }
    weights = {name: layer.weight for name, layer in linears(model).items()}
    same = [ours[names[name]].data.equal(theirs[names[name]].data) for name in weights]
    yield "same bytes", format, "ours", f"of {len(same)} weights", sum(same)
    rounded = {}
    for whose, tensors in (("ours", ours), ("llama.cpp", theirs)):
        rounded[whose] = {name: tensors[names[name]].dequantize() for name in weights}
        changed = with_weights(model, lambda name, _: rounded[whose][name])
        yield "perplexity", format, whose, "weights alone", perplexity(changed)
    for kind, error in (("error", relative_error), ("weighted", weighted_error)):
        errors = {
            whose: {name: error(weight, each[name]) for name, weight in weights.items()}
            for whose, each in rounded.items()
        }
        for whose, each in errors.items():
            yield kind, format, whose, "mean", statistics.mean(each.values())
        ratios = {name: errors["ours"][name] / errors["llama.cpp"][name] for name in weights}
        worst = max(ratios, key=ratios.get)
        yield kind, format, "ours / llama.cpp", f"worst: {worst}", ratios[worst]


def relative_error(weight, rounded):
    return ((weight - rounded).norm() / weight.norm()).item()


def weighted_error(weight, rounded):
    return ((weight * (weight - rounded)).norm() / weight.square().norm()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--models", metavar="FOLDER", help="where trained weights are kept")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    found, where = [], csv_rows.measured_on("torch", "llama_cpp_python")
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(chosen.seeds):
            for kind, format, whose, name, value in compared(
                trained_or_kept(seed, chosen.steps, chosen.models), Path(folder)
            ):
                print(f"{seed}  {kind:10} {format:5} {whose:16} {name:40} {value:.4g}", flush=True)
                row = {"kind": kind, "format": format, "whose": whose, "name": name, "seed": seed}
                found.append(row | {"value": f"{value:.4g}"} | where)
    if chosen.write:
        csv_rows.write(FILE, found)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
