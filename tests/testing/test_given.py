"""Hypothesis draws an example, and all ranks run it."""

pytest_plugins = ["pytester"]

GIVEN = "from hypothesis import assume, event, given, note, strategies as st\n"


def test_all_ranks_run_the_same_example(tests):
    source = (
        GIVEN
        + """
@pytest.mark.ranks(1, 3)
@given(x=st.lists(st.integers(0, 9)))
def test_same(x, rank, world_size):
    assume(len(x) != 1)
    note("x"), event("y")
    examples = [None] * world_size
    dist.all_gather_object(examples, x)
    assert examples == [x] * world_size
    x.append(rank)

@pytest.mark.ranks(1, 2)
class TestIt:
    @given(x=st.integers())
    def test_method(self, x): dist.barrier()
"""
    )
    assert tests(source).outcomes == {"passed": 4}


def test_a_failing_example_shrinks(tests):
    source = (
        GIVEN
        + """
@pytest.mark.ranks(2)
@given(x=st.integers(0, 1000))
def test_it(rank, x):
    dist.barrier()
    assert x < 17 or rank == 0

@pytest.mark.ranks(2)
@given(x=st.integers(0, 1000))
def test_deadlock(rank, x):
    if rank or x < 17:
        dist.barrier()
"""
    )
    ran = tests(source, "--hypothesis-profile", "default")  # under CI, hypothesis's own profile says more
    assert ran.outcomes == {"failed": 2}
    assert (
        ran.between("rank = 1", "test_it.py")
        == """\
rank = 1, x = 17

    @pytest.mark.ranks(2)
    @given(x=st.integers(0, 1000))
    def test_it(rank, x):
        dist.barrier()
>       assert x < 17 or rank == 0
E       assert (17 < 17 or 1 == 0)
E       on rank 1 of 2
E       Failing test case: test_it(
E           rank=<each rank's own>,
E           x=17,
E       )

test_it.py:9: AssertionError"""
    )
    assert "rank 1 waits in barrier()" in ran.text and "on_ranks.py" not in ran.text


def test_drawing_on_a_rank_is_refused(tests):
    ran = tests(GIVEN + "@pytest.mark.ranks(2)\n@given(data=st.data())\ndef test_it(data): data.draw(st.none())")
    assert "test_it: data=data() draws while the test runs, and each rank would draw another example" in ran.text
