"""Valid calls of ``tinydist.quantization``."""

import tempfile

import torch
from nonsense.calls import Call
from torch import nn

from tinydist import quantization
from tinydist.attention.decoder import Decoder, DecoderConfig
from tinydist.quantization import BlockKVCache, in_blocks, inputs_of, load_gguf, quantize, save_gguf, save_llama


def signed(function, arguments, **options):
    return Call(function, arguments, signed=True, **options)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 8))


def inputs():
    return inputs_of(model(), [torch.arange(128.0).view(2, 64)])["0"]


def weight():
    return model()[0].weight.detach()


def saved(**given):
    with tempfile.NamedTemporaryFile() as file:
        save_gguf(file.name, **given)
        return [list(each.shape) for each in load_gguf(file.name)[0].values()]


def saved_for_llama(**given):
    with tempfile.NamedTemporaryFile() as file:
        save_llama(file.name, **given)
        return sorted(load_gguf(file.name)[0])


def rounding(function, **more):
    return signed(
        function, lambda: dict(weight=weight(), bits=4, group=16) | {name: make() for name, make in more.items()}
    )


CALLS = {
    "quantize": signed(
        lambda **given: quantize(**given).dequantize(), lambda: dict(x=torch.arange(64.0), format="Q4_0")
    ),
    "BlockKVCache": Call(
        lambda **given: BlockKVCache(**given).nbytes,
        lambda: dict(batch=2, kv_heads=1, capacity=4, head_dim=32, format="Q8_0"),
    ),
    "BlockLinear": signed(
        lambda **given: quantization.BlockLinear(**given)(torch.ones(2, 64)),
        lambda: dict(linear=model()[0], format="Q4_0"),
    ),
    "in_blocks": signed(
        lambda **given: in_blocks(**given)(torch.ones(2, 64)), lambda: dict(model=model(), format="Q4_0", keep=["1"])
    ),
    "matmul": signed(quantization.matmul, lambda: dict(x=torch.ones(2, 64), weight=quantize(weight()))),
    "save_gguf": Call(saved, lambda: dict(tensors={"w": torch.ones(2)}, keys={"a": 1}, alignment=32)),
    "save_llama": Call(saved_for_llama, lambda: dict(decoder=Decoder(DecoderConfig(layers=1)), context=64)),
    "round_to_nearest": rounding(quantization.round_to_nearest),
    "gptq": signed(quantization.gptq, lambda: dict(weight=weight(), inputs=inputs(), bits=4, group=16, damping=0.01)),
    "awq": rounding(quantization.awq, inputs=inputs),
    "bits_per_weight": Call(quantization.bits_per_weight, lambda: dict(bits=4, group=32)),
    "inputs_of": Call(
        lambda **given: [each.tokens for each in inputs_of(**given).values()],
        lambda: dict(model=model(), batches=[torch.ones(2, 64)]),
    ),
    "output_error": signed(
        quantization.output_error, lambda: dict(weight=weight(), rounded=weight() + 1, inputs=inputs())
    ),
}
REASONS = {
    "FORMATS": "data",
    "Blocks": "what quantize gives",
    "Format": "a row of FORMATS",
    "Inputs": "what inputs_of gives",
    "load_gguf": "takes a path; damaged files: tests/quantization/test_gguf_file.py",
}
