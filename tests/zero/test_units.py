"""The order in which units run: as defined, until it has been seen."""

from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tinydist.zero.zero3 import Order

orders = st.lists(st.integers(0, 4), max_size=8)


def forward(order, units):
    """What is expected, before each."""
    order.forward_begins()
    expected = [order.first()]
    for unit in units:
        expected.append(order.begins(unit))
        order.ends(unit)
    return expected


@given(orders)
def test_what_ran_before_is_expected_again_two_units_ahead(numbers):
    units = [nn.Identity() for _ in range(5)]
    ran, order = [units[number] for number in numbers], Order(units)
    forward(order, ran)
    if ran:
        assert forward(order, ran) == [ran[place : place + 2] for place in range(len(ran) + 1)]


@given(orders)
def test_backward_comes_to_what_ended_from_the_last_on(numbers):
    units = [nn.Identity() for _ in range(5)]
    ran, order = [units[number] for number in numbers], Order(units)
    forward(order, ran)
    back = ran[::-1]
    assert order.last() == back[:2]
    for place, unit in enumerate(back):
        assert order.comes_back_to(unit) == back[place + 1 : place + 3]


def test_what_is_not_expected_lets_nothing_be_gathered():
    a, b, c = (nn.Identity() for _ in range(3))
    assert forward(Order([a, b, c]), [b, a, c]) == [[a, b], [], [], []]
