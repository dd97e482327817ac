"""Nonsense for an argument of anything that a learner calls: an error that states a rule, or a sensible value."""

import inspect
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nonsense.calls import KINDS, NONSENSE, is_ruled, is_sane

FOLDERS = (
    "hardware", "collectives", "precision", "data_parallel", "zero", "tensor_parallel", "pipeline_parallel",
    "attention", "experts", "context_parallel", "compression", "compilers", "quantization", "recompute", "training",
    "planner", "serving", "visuals", "magic",
)  # fmt: skip
TABLES = {folder: import_module(f"nonsense.{folder}") for folder in FOLDERS}
CALLS = {f"{folder}: {name}": call for folder, table in TABLES.items() for name, call in table.CALLS.items()}


@st.composite
def nonsense(draw):
    """A call, the argument that is changed, and to what."""
    name = draw(st.sampled_from(sorted(CALLS)))
    argument = draw(st.sampled_from(CALLS[name].names))
    return name, argument, draw(st.sampled_from(CALLS[name].nonsense(argument)))


def check(case):
    name, argument, what = case
    call = CALLS[name]
    outcome = call.with_nonsense(argument, what)
    if isinstance(outcome, Exception):
        assert is_ruled(outcome), f"{name}, {argument}={what}: {type(outcome).__name__}: {outcome}"
    else:
        assert is_sane(call, outcome), f"{name}, {argument}={what}: {outcome}"
        assert what not in KINDS, f"{name} takes {what} for {argument}: {outcome}"


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(nonsense())
def test_nonsense_ends_in_a_rule_or_a_sensible_value(case):
    check(case)


@pytest.mark.exhaustive
@settings(max_examples=5000, deadline=None, database=None)
@given(nonsense())
def test_much_nonsense_ends_in_a_rule_or_a_sensible_value(case):
    check(case)


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_themselves_are_valid(name):
    outcome = CALLS[name].with_nonsense(None, None)
    assert not isinstance(outcome, Exception), outcome
    assert is_sane(CALLS[name], outcome)


@pytest.mark.parametrize("folder", FOLDERS)
def test_all_that_a_folder_offers_is_called_or_has_a_reason(folder):
    """Also the functions of the modules that it offers."""
    library, offered = import_module(f"tinydist.{folder}"), set()
    for name in library.__all__:
        found = getattr(library, name)
        if inspect.ismodule(found):
            members = inspect.getmembers(found, lambda each: callable(each) and hasattr(each, "__module__"))
            its_own = [inner for inner, each in members if each.__module__ == found.__name__ and inner[0] != "_"]
            offered |= {f"{name}.{inner}" for inner in its_own}
        else:
            offered.add(name)
    assert offered - TABLES[folder].CALLS.keys() == offered & TABLES[folder].REASONS.keys()


def test_an_error_from_inside_is_not_a_rule():
    """The judge itself: Python's own words for what it came upon."""
    for wrong in (lambda: 1 / 0, lambda: [][0], lambda: {}["a"], lambda: None.shape, lambda: len(3), lambda: 1 < "a"):
        with pytest.raises(Exception) as error:
            wrong()
        assert not is_ruled(error.value)
    assert is_ruled(ValueError("f: n must be an integer >= 1, got 0"))
    assert len(NONSENSE) > 20
