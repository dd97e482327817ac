"""Who traces a program on simulated ranks sees the program, not what is noted of each of its operators."""

import sys

import pytest
import torch

import tinydist
from tinydist.tracing.untraced import untraced


def functions_seen(program):
    seen, before = set(), sys.gettrace()

    def trace(frame, event, argument):
        seen.add((frame.f_globals.get("__name__", ""), frame.f_code.co_name))

    sys.settrace(trace)
    try:
        program()
    finally:
        sys.settrace(before)
    return seen


def step():
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def test_what_is_noted_of_an_operator_is_not_seen_and_all_else_is():
    (seen,) = tinydist.launch(lambda: functions_seen(step), 1).results
    assert {(__name__, "step"), ("torch.nn.modules.linear", "forward")} <= seen
    noting = {name for home, name in seen if home == "tinydist.tracing.memory"}
    assert noting <= {"_gone", "_note"}  # when a tensor ends


def test_tracing_goes_on_after_an_error():
    @untraced
    def fails():
        raise KeyError

    def program():
        with pytest.raises(KeyError):
            fails()
        step()

    assert (__name__, "step") in functions_seen(program)
