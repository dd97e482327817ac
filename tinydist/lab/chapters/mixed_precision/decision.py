"""The decision of all ranks: each puts one number into a step, which says whether it has an overflow."""

from ....simulator.record import SIZE_IS_OF_ALL, Issue
from ...errors import Wrong
from ...messages import draw_traffic, many, of

NBYTES = 8  # one number


def put_in(group):
    """A list that grows by what this rank puts into each collective of a simulated group: the numbers, as text."""
    found, meet = [], group._meet

    def note(name, move, alike, inputs, *others, **how):
        found.append(f"{numbers(inputs)} into {name}")
        return meet(name, move, alike, inputs, *others, **how)

    group._meet = note
    return found


def numbers(inputs):
    return [numbers(each) if isinstance(each, list | tuple) else each.tolist() for each in inputs]


def one_number(trial):
    plan = trial.case.expected
    for rank, program in enumerate(trial.run.record.programs):
        calls = [entry.transfer for entry in of(program, Issue)]
        if len(calls) > plan.steps:
            raise Wrong(
                f"rank {rank} makes {many(len(calls), 'call')} of torch.distributed in {plan.steps} steps, where one "
                "a step is enough: whether there is an overflow in any gradient of any rank",
                draw_traffic(trial),
            )
        largest = max((size(call) for call in calls), default=0)
        if largest > NBYTES:
            raise Wrong(
                f"rank {rank} puts {largest:,} bytes into one {calls[0].name}, where one number of at most {NBYTES} is "
                "enough: what is inf or NaN each rank sees for itself; only whether there is any must be shared",
                draw_traffic(trial),
            )
        sent = [call for call in calls if size(call)]
        if plan.ranks > 1 and len(sent) < plan.steps:
            raise Wrong(
                f"rank {rank} puts a number into {len(sent)} collectives in {plan.steps} steps: it must ask the others "
                "in each step. A barrier says nothing, and memory in common is not to be had between processes",
                draw_traffic(trial),
            )


def tells(trial):
    """What a rank puts in when it has an overflow, it does not put in when nobody has."""
    plan = trial.case.expected
    if plan.ranks == 1:
        return
    for rank, history in enumerate(trial.returned):
        said = [each for *_, each in history]
        calm = {each for step, each in enumerate(said) if step not in plan.planted}
        for step, planted in sorted(plan.planted.items()):
            if rank in planted and said[step] in calm:
                raise Wrong(
                    f"in step {step + 1} rank {rank} has an inf or NaN, and puts {said[step]}: the same as when "
                    "nobody has one, so the other ranks cannot know. Put in whether this rank has an overflow"
                )


def size(transfer):
    """What one rank puts in."""
    if transfer.name in SIZE_IS_OF_ALL:
        return transfer.nbytes // len(transfer.ranks)
    return sum(transfer.nbytes.values()) if isinstance(transfer.nbytes, dict) else transfer.nbytes
