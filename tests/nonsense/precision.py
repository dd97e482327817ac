"""Valid calls of ``tinydist.precision``."""

import torch
from nonsense.calls import Call
from torch import nn

from tinydist import precision
from tinydist.precision import (
    DynamicLossScale,
    Format,
    FP32Optimizer,
    HysteresisLossScale,
    Kahan,
    LossScaler,
    MasterWeights,
    StaticLossScale,
    StochasticRounding,
    autocast,
)


def model():
    torch.manual_seed(0)
    return nn.Linear(2, 2)


def stepped(function):
    """``function(scaler, optimizer)`` where a loss has been scaled and gone backward."""

    def call(rule):
        net, scaler = model(), LossScaler(rule)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler.scale(net(torch.ones(1, 2)).sum()).backward()
        return function(scaler, optimizer)

    return call


def masters():
    net = model().bfloat16()
    net(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
    return MasterWeights(net.parameters(), torch.optim.SGD, lr=0.1)


def eight_bits():
    return precision.fp8.quantize(torch.ones(3, 4))


def scaler():
    made = LossScaler()
    made.scale(torch.ones(()))
    return made


CALLS = {
    "Format": Call(
        Format, lambda: dict(name="mine", exponent_bits=5, mantissa_bits=3, specials="nan", dtype=None, nbytes=2)
    ),
    "find_format": Call(precision.find_format, lambda: dict(which="bf16")),
    "encode_bits": Call(precision.encode_bits, lambda: dict(number=1.5, format="bf16"), signed=True),
    "decode_bits": Call(
        precision.decode_bits,
        lambda: dict(sign="0", exponent="01111111", mantissa="1000000", format="bf16"),
        signed=True,
    ),
    "round_to": Call(
        precision.round_to,
        lambda: dict(x=torch.ones(3), format="bf16", mode="stochastic", generator=torch.Generator()),
        signed=True,
    ),
    "StaticLossScale": Call(StaticLossScale, lambda: dict(scale=8.0)),
    "DynamicLossScale": Call(
        DynamicLossScale,
        lambda: dict(scale=8.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=3, good_steps=1),
    ),
    "HysteresisLossScale": Call(
        HysteresisLossScale,
        lambda: dict(
            scale=8.0, window=3, hysteresis=2, min_scale=1.0, consecutive=True, patience=2, steps=3, last_overflow=1
        ),
        signed=True,
    ),
    "autocast": Call(autocast, lambda: dict(device="cpu", dtype=torch.bfloat16, enabled=True, cache=True)),
    "autocast as a decorator": Call(lambda function: autocast()(function), lambda: dict(function=len)),
    "LossScaler": Call(LossScaler, lambda: dict(rule=DynamicLossScale(), group=None)),
    "LossScaler.scale": Call(lambda loss: LossScaler().scale(loss), lambda: dict(loss=torch.ones(())), signed=True),
    "LossScaler.unscale_": Call(
        lambda optimizer: scaler().unscale_(optimizer),
        lambda: dict(optimizer=torch.optim.SGD(model().parameters(), lr=0.1)),
    ),
    "LossScaler.step": Call(
        lambda optimizer: scaler().step(optimizer),
        lambda: dict(optimizer=torch.optim.SGD(model().parameters(), lr=0.1)),
    ),
    "LossScaler.load_state_dict": Call(LossScaler().load_state_dict, lambda: dict(state=LossScaler().state_dict())),
    **{
        kind.__name__: Call(
            kind,
            lambda: dict(params=list(model().parameters()), optimizer_class=torch.optim.SGD, lr=0.1),
            kept=("lr",),
        )
        for kind in (FP32Optimizer, MasterWeights, Kahan)
    },
    "StochasticRounding": Call(
        StochasticRounding,
        lambda: dict(params=list(model().parameters()), optimizer_class=torch.optim.SGD, seed=3, lr=0.1),
        kept=("lr",),
    ),
    "MasterWeights.step": Call(lambda closure: masters().step(closure), lambda: dict(closure=lambda: torch.ones(()))),
    "MasterWeights.clip_grad_norm_": Call(
        lambda max_norm: masters().clip_grad_norm_(max_norm), lambda: dict(max_norm=1.0)
    ),
    "MasterWeights.add_param_group": Call(
        lambda param_group: masters().add_param_group(param_group),
        lambda: dict(param_group={"params": list(model().parameters())}),
    ),
    "MasterWeights.load_state_dict": Call(
        lambda state_dict: masters().load_state_dict(state_dict), lambda: dict(state_dict=masters().state_dict())
    ),
    "fp8.quantize": Call(precision.fp8.quantize, lambda: dict(x=torch.ones(4), format="fp8 e5m2")),
    "mxfp8.quantize": Call(
        precision.mxfp8.quantize, lambda: dict(x=torch.ones(32), format="fp8 e4m3", rounding="down")
    ),
    "fp4.nvfp4": Call(precision.fp4.nvfp4, lambda: dict(x=torch.ones(16, 16), mode="nearest", square=True)),
    "fp4.mxfp4": Call(precision.fp4.mxfp4, lambda: dict(x=torch.ones(32), mode="nearest", scales="down")),
    "fp4.hadamard": Call(precision.fp4.hadamard, lambda: dict(x=torch.ones(16), signs=torch.ones(16))),
    "fp4.linear": Call(
        precision.fp4.linear,
        lambda: dict(x=torch.ones(16, 16), weight=torch.ones(16, 16), recipe=precision.fp4.Recipe("nearest")),
    ),
    "fp8.matmul": Call(precision.fp8.matmul, lambda: dict(a=eight_bits(), b=eight_bits(), dtype=torch.float32)),
    "fp8.linear": Call(
        precision.fp8.linear,
        lambda: dict(
            x=torch.ones(2, 4), weight=torch.ones(3, 4), quantize=precision.fp8.quantize, gradients="fp8 e5m2"
        ),
        kept=("gradients",),
    ),
    "in_fp8": Call(
        precision.in_fp8, lambda: dict(quantize=precision.fp8.quantize, gradients="fp8 e5m2"), kept=("gradients",)
    ),
}
WITHIN = "is called by what is offered"
REASONS = {
    "FORMATS": "data",
    "Bits": "what encode_bits gives",
    "tf32": "takes nothing",
    "fp8.Scaled": "what quantize gives",
    "fp8.dequantized": WITHIN,
    "fp8.eight_bits": WITHIN,
    "mxfp8.power_of_two": WITHIN,
    "fp4.Recipe": "options",
    "fp4.FP4Linear": WITHIN,
    "fp4.check_blocks": WITHIN,
    "fp4.in_blocks": WITHIN,
    "fp4.hadamard_matrix": WITHIN,
    "fp4.matmul": WITHIN,
    "fp8.FP8Linear": WITHIN,
    "fp8.in_fp8": "offered as in_fp8",
}
