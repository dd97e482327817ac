"""A plan becomes options, and the same plan again."""

from argparse import ArgumentParser

import pytest

from tinydist.plan import Plan
from tinydist.plan_options import add_options, options_of, plan_of


def test_a_flag_has_no_value():
    plan = Plan(dp=2, zero=1, overlap_param_gather=True)
    assert options_of(plan) == {"--mesh": "dp=2", "--batch": 2, "--zero": 1, "--overlap-param-gather": ""}
    parser = ArgumentParser()
    add_options(parser)
    line = " ".join(f"{name} {value}" for name, value in options_of(plan).items())
    assert plan_of(parser.parse_args(line.split())) == plan


@pytest.mark.parametrize("how", [dict(layers=(1, 1)), dict(reduce_each=True), dict(overlap_comm=False)], ids=str)
def test_a_choice_without_an_option_is_not_left_out(how):
    with pytest.raises(ValueError, match=f"Plan: there is no option for {next(iter(how))}"):
        options_of(Plan(pp=2, **how))
