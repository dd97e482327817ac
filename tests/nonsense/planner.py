"""Valid calls of ``tinydist.planner``."""

from nonsense.calls import Call

from tinydist import planner
from tinydist.hardware import find_cluster
from tinydist.planner import Experts, Latent, Measured, Model, Plan, find_model, find_program

NODE = find_cluster("A100 node")
GPT = find_model("GPT-2")
PLAN = Plan(dp=8, microbatch=4, precision="bf16")
MEGATRON = find_program("Megatron-LM")
ONE = planner.evaluate(GPT, PLAN, NODE)


def made(kind, **arguments):
    return Call(kind, lambda: dict(arguments))


def seconds(function, **given):
    """Of what is found, all numbers."""
    return Call(lambda **arguments: function(**arguments).seconds, lambda: dict(given))


SIZES = dict(name="mine", layers=2, width=64, heads=4, vocabulary=96, tokens=16, kv_heads=2, head_dim=16, inner=256)
KINDS = dict(gated=True, biases=False, tied=False, positions="rotary", norm="rms", dropout=0.1, normed_embedding=False)
CALLS = {
    "Model": made(Model, **SIZES, **KINDS, experts=None, latent=None, source="mine"),
    "Experts": made(Experts, total=8, active=2, inner=64, shared=1, dense_layers=1, balanced=True, ranks=2),
    "Latent": made(Latent, queries=8, keys=8, rotary=4, plain=8, values=8),
    "Plan.with_batch": made(PLAN.with_batch, batch=64),
    "check": made(planner.check, plan=PLAN, model=GPT, ranks=8, cluster=NODE, program=MEGATRON),
    "find_model": made(lambda name: find_model(name).parameters, name="GPT-2"),
    "Program": made(
        planner.Program,
        name="mine",
        fused=True,
        flash=False,
        source="mine",
        compiled=True,
        fp8=False,
        early_stop=True,
        loss="fused",
        holds=MEGATRON.holds,
        zero=(0, 1),
        zero_in_pipeline=(0,),
        schedules=["gpipe"],
        sequence_parallel=["save"],
        recompute=["full"],
        features=["fp8"],
        experts=True,
        limits=MEGATRON.limits,
        flags=MEGATRON.flags,
    ),
    "Program.options": made(MEGATRON.options, plan=PLAN, model=GPT),
    "find_program": made(lambda name: find_program(name).name, name="tinydist"),
    "Measured": made(Measured, cluster=NODE, dtype="bfloat16", launch=2e-5, contention=0.2, slower_products=1.1),
    "Clock": made(planner.Clock, cluster=NODE, dtype="bfloat16"),
    "memory": made(lambda **given: planner.memory(**given).total, model=GPT, plan=PLAN, rank=0, program=MEGATRON),
    "step_time": seconds(
        planner.step_time, model=GPT, plan=PLAN, cluster=NODE, program=MEGATRON, machine=Measured(NODE)
    ),
    "evaluate": seconds(planner.evaluate, model=GPT, plan=PLAN, cluster=NODE, program=MEGATRON, machine=None),
    "search": Call(
        lambda **given: planner.search(**given, pp=1, tp=1).best.seconds,
        lambda: dict(model=GPT, cluster=NODE, batch=64, devices=8, program=MEGATRON),
    ),
    "explain": made(planner.explain, candidate=ONE, than=None),
    "RunCost": Call(
        lambda **given: planner.RunCost(**given).cost,
        lambda: dict(candidate=ONE, tokens=1e9, goodput=0.9, price=2.0, watts=700),
    ),
    "young": made(planner.young, checkpoint=60, between_failures=10_000),
    "daly": made(planner.daly, checkpoint=60, between_failures=10_000),
    "goodput": made(planner.goodput, checkpoint=60, between_failures=10_000, restart=600, interval=1000),
}
REASONS = {
    "MODELS": "data",
    "PROGRAMS": "data",
    **dict.fromkeys(["MEGATRON_LM", "DEEPSPEED", "FSDP", "TORCHTITAN", "TINYDIST"], "data"),
    "Candidate": "what evaluate gives",
    "Plan": "training has it",
    "MemoryEstimate": "what memory gives",
    "StepTime": "what step_time gives",
}
