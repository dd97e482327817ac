"""Search over all parallel plans of a model on a cluster: which fit, which is fastest, and why.

found = search(model, cluster, batch=1024)
found.best, found.front          the fastest plan that fits; the Pareto front of time and memory
explain(found.best)              where each second and each byte goes
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from ..hardware import Cluster
from ..plan import RULES, Plan
from ..rules import count, must, validate
from .checks import broken, refuse
from .machine import Machine, Measured
from .memory import MemoryEstimate, peak, room
from .model import Model
from .programs import MEGATRON_LM, Program
from .step_time import StepTime, machine_of, timed_step


@dataclass(frozen=True)
class Candidate:
    model: Model
    plan: Plan
    cluster: Cluster
    program: Program
    step: StepTime
    memory: MemoryEstimate

    @property
    def seconds(self):
        return self.step.seconds

    @property
    def tokens_per_second(self):
        """Of a device."""
        return self.plan.batch * self.model.tokens / self.seconds / self.plan.ranks

    @property
    def fits(self):
        return self.needed <= 1

    @property
    def needed(self):
        """Part of what programs can have of a device's memory."""
        return self.memory.total / room(self.cluster.device)


@dataclass(frozen=True)
class Found:
    candidates: list  # of Candidate, all of them, the fastest first
    refused: int  # plans that make no sense

    @cached_property
    def fitting(self):
        return [each for each in self.candidates if each.fits]

    @property
    def best(self):
        if not self.fitting:
            least = min(self.candidates, key=lambda each: each.memory.total)
            have = room(least.cluster.device)
            raise ValueError(
                f"search: none of {len(self.candidates)} plans fits: the smallest needs "
                f"{least.memory.total / 1e9:.1f} GB on each device, which has {have / 1e9:.0f}: {least.plan}"
            )
        return self.fitting[0]

    @cached_property
    def front(self):
        """The Pareto front, from the fastest to the smallest."""
        front = []
        for each in self.candidates:
            if not front or each.memory.total < front[-1].memory.total:
                front.append(each)
        return front


@validate(model=Model, plan=Plan, cluster=Cluster, program=Program, machine=Machine)
def evaluate(model, plan, cluster, program=MEGATRON_LM, machine=None) -> Candidate:
    """Of the rank of the pipeline that holds most: the first or the last."""
    refuse("evaluate", plan, model, cluster, program)
    return evaluated(model, plan, cluster, program, machine_of("evaluate", cluster, machine))


def evaluated(model, plan, cluster, program, machine):
    """Of a plan that was checked."""
    step = timed_step(model, plan, cluster, program, machine)
    held = max((peak(model, plan, rank, program) for rank in {0, plan.pp - 1}), key=lambda each: each.held)
    return Candidate(model, plan, cluster, program, step, held)


@validate(model=Model, cluster=Cluster, batch=count, devices=count, program=Program)
def search(model, cluster, batch, devices=None, program=MEGATRON_LM, **fixed) -> Found:
    """``batch``: sequences of a step. ``fixed``: what all plans have, ``pp=8`` say. The precision is bf16 by default.

    Only what ``program`` can run is searched. Raises ``ValueError`` if there is no plan at all.
    """
    devices = devices or cluster.size
    cluster.check_ranks(devices)
    check_fixed(fixed)
    given = "".join(f", {name}={value!r}" for name, value in fixed.items())
    machine, found, refused, why = Measured(cluster), [], 0, f"no degrees divide the devices and the batch{given}"
    for plan in plans(model, cluster, program, devices, batch, {"precision": "bf16"} | fixed):
        unfit = next(broken(plan, model, cluster, program), None) if isinstance(plan, Plan) else plan or why
        if unfit:
            refused, why = refused + 1, unfit
        else:
            found.append(evaluated(model, plan, cluster, program, machine))
    if not found:
        raise ValueError(f"search: there is no plan for {model} on {devices} devices with {batch} sequences: {why}")
    return Found(sorted(found, key=lambda each: each.seconds), refused)


LEAST_TOKENS = 8192  # of a sequence on each rank of a context group, unless cp is given: as Llama 3 was trained
FOLLOWS = ("dp", "microbatches", "schedule")  # from the devices, the batch, and the other choices


def check_fixed(fixed):
    for name, value in fixed.items():
        if name in FOLLOWS or name not in RULES:
            known = ", ".join(each for each in RULES if each not in FOLLOWS)
            raise ValueError(f"search: {name} is not a choice that can be fixed: these are {known}")
        if value != Plan.__dataclass_fields__[name].default:
            must("search", name, RULES[name], value)


def choices(program, pp, cp):
    return {
        "zero": program.zero_stages(pp),
        "microbatch": (1, 2, 4, 8),
        "sequence_parallel": (None, *(each for each in program.sequence_parallel if each != "overlap")),
        "recompute": program.recompute,
        "chunks": (1, 2, 4) if "interleaved" in program.schedules else (1,),
        "context": program.context if cp > 1 else ("ring",),
    }


def shared_by(model, ranks):
    """How many data ranks may share the experts."""
    return divisors(math.gcd(model.experts.total, ranks), ranks) if model.experts else [1]


def plans(model, cluster, program, devices, batch, fixed):
    """Each combination; None where it makes no sense, or why in words."""
    sizes = [size for size in divisors(devices, cluster.devices_per_node) if model.heads % size == 0]
    given = {name: (fixed.pop(name),) for name in ("tp", "pp", "cp", "ep", *choices(program, 1, 1)) if name in fixed}
    cuts = given.pop("cp", divisors(devices, max(1, model.tokens // LEAST_TOKENS) if program.context else 1))
    for tp, pp, cp in product(given.pop("tp", sizes), given.pop("pp", divisors(devices, model.layers)), cuts):
        dp, rest = divmod(devices, tp * pp * cp)
        if rest:
            continue
        ways = choices(program, pp, cp) | {"ep": shared_by(model, dp * cp)} | given
        for chosen in product(*ways.values()):
            yield plan_of(batch, dict(zip(ways, chosen)) | {"tp": tp, "pp": pp, "dp": dp, "cp": cp} | fixed)


def plan_of(batch, sizes):
    pp, dp, looped = sizes["pp"], sizes["dp"], sizes["chunks"] > 1
    microbatches, rest = divmod(batch, dp * sizes["microbatch"])
    if rest or (looped and (pp == 1 or microbatches % (microbatches // pp or 1))):
        return None
    if (sizes["sequence_parallel"] and sizes["tp"] == 1) or (sizes["zero"] and dp * sizes["cp"] == 1):
        return None
    try:
        return Plan(**sizes, schedule="interleaved" if looped else "1f1b", microbatches=microbatches)
    except ValueError as error:
        return str(error)


def divisors(number, most):
    return [each for each in range(1, min(number, most) + 1) if number % each == 0]


# Why.


@validate(candidate=Candidate, than=Candidate)
def explain(candidate, than=None) -> str:
    """A breakdown of time and memory. ``than``: another candidate, and what would have to change for it to win."""
    step, held, plan = candidate.step, candidate.memory, candidate.plan
    lines = [f"{candidate.model} on {plan.ranks} x {candidate.cluster.device}: {plan}"]
    lines.append(f"{step.seconds:.3f} s per step, {step.mfu:.1%} of the peak for the model's FLOPs")
    for what, seconds in sorted(step.terms.items(), key=lambda term: -term[1]):
        if seconds > 0.0005 * step.seconds:
            lines.append(f"    {what:18} {seconds:9.3f} s  {seconds / step.seconds:6.1%}")
    has = room(candidate.cluster.device)
    lines.append(f"{held.total / 1e9:.1f} GB at the peak ({held.moment}), of {has / 1e9:.0f}")
    for what, nbytes in (held.terms | held.overhead).items():
        lines.append(f"    {what:18} {nbytes / 1e9:9.2f} GB {nbytes / held.total:6.1%}")
    return "\n".join(lines + ([*against(candidate, than)] if than else []))


def against(candidate, other):
    """Why another candidate is slower, term by term."""
    if not other.fits:
        over = other.memory.total - room(other.cluster.device)
        yield f"{other.plan}: would need {over / 1e9:.1f} GB more than there are"
    behind = other.seconds - candidate.seconds
    if behind <= 0:
        yield f"{other.plan}: {-behind:.3f} s faster"
        return
    more = {what: other.step.terms[what] - seconds for what, seconds in candidate.step.terms.items()}
    most = max(more, key=more.get)
    needed = 1 - behind / other.step.terms[most]
    how = f"; it wins if its {most} took {needed:.0%} of that" if 0 < needed < 1 else ""
    yield f"{other.plan}: {behind:.3f} s slower, {more[most]:+.3f} s by {most}{how}"
