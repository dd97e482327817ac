"""Runs that differ in more than the number of ranks: what is right in another scenario narrows nothing down."""

from ...errors import Wrong
from ...ranks import Trials, also_right


class Scenarios(Trials):
    """Where a case is wrong, other worlds are named only if they were the same scenario."""

    def each(self, judge, among=lambda case: True):
        def judge_all():
            right = set()
            for trial in self.all:
                if among(trial.case):
                    try:
                        trial.judge(judge)
                    except Wrong as wrong:
                        sizes = {ranks for about, ranks in right if about == trial.case.about}
                        text = str(wrong) + also_right(sizes - {trial.case.ranks})
                        raise Wrong(text, wrong.picture) from None
                    right.add((trial.case.about, trial.case.ranks))

        return judge_all
