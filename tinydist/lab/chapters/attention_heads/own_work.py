"""What may not be called here: finished attention, the library's or torch's, by whatever name."""

from ....simulator.record import Operator
from ...errors import Wrong
from ...own_work import calls_none_of

SOLVED = {home: home for home in ("tinydist.attention", "tinydist.lab.chapters", "torch.nn.attention")}
INSTEAD = "here it is for you to build"
ATTENTION = "_scaled_dot_product"


def own_work(watched, trials, lent=()):
    """A judge: the answer calls none of that, and no operator of torch's attention runs."""

    def judge():
        trials.together(calls_none_of(watched, SOLVED, INSTEAD, lent))()
        for trial in trials.all:
            no_operator(trial)

    return judge


def no_operator(trial):
    """Whatever torch's function was called by, it comes to this."""
    steps = trial.run.record.programs[0] if trial.run else ()
    name = next((each.name for each in steps if isinstance(each, Operator) and each.name.startswith(ATTENTION)), None)
    if name:
        raise Wrong(f"you call torch's {name}, where this is solved; {INSTEAD}")
