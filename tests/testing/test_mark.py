"""``@pytest.mark.ranks``: sizes and options, and what is refused when tests are collected."""

import pytest

pytest_plugins = ["pytester"]


def test_sizes_make_tests(tests):
    source = """
@pytest.mark.ranks(4)
def test_one(world_size): assert world_size == 4

@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("x", ["a", "b"])
def test_several(world_size, x): print(f"{x}{world_size}")

@pytest.mark.ranks([1, 8])
def test_list(world_size): assert world_size in (1, 8)
"""
    ran = tests(source, "-v", "-s")
    assert ran.outcomes == {"passed": 9}
    ids = ["test_one", "test_several[ranks3-b]", "test_list[ranks1]", "test_list[ranks8]"]
    assert all(f"::{id} " in ran.text for id in ids) and "[rank 2] a3" in ran.text


def test_the_closest_mark_counts(tests):
    source = """
pytestmark = pytest.mark.ranks(2)

def test_of_the_module(world_size): assert world_size == 2

@pytest.mark.ranks(3, seed=7)
class TestIt:
    def test_of_the_class(self, world_size):
        assert world_size == 3 and torch.initial_seed() == 7

    @pytest.mark.ranks(4)
    def test_its_own(self, world_size):
        assert world_size == 4 and torch.initial_seed() == 0
"""
    assert tests(source).outcomes == {"passed": 3}


def test_options_are_those_of_launch(tests):
    source = """
@pytest.mark.ranks(16, schedule="shuffle", seed=3)
def test_nodes(): assert os.environ["LOCAL_WORLD_SIZE"] == "8"

@pytest.mark.ranks(64, fake=True, only=[0])
def test_fake(rank): assert type(torch.ones(10**12)).__name__ == "FakeTensor" and rank == 0

@pytest.mark.ranks(2, init=False)
def test_own_group(rank):
    dist.init_process_group("gloo")
    assert dist.get_rank() == rank
"""
    assert tests(source).outcomes == {"passed": 3}


NONSENSE = {
    "ranks(0)": "ranks must be an integer >= 1, got 0",
    "ranks(-1)": "ranks must be an integer >= 1, got -1",
    "ranks('4')": "ranks must be an integer >= 1, got '4'",
    "ranks(True)": "ranks must be an integer >= 1, got True",
    "ranks(2.5)": "ranks must be an integer >= 1, got 2.5",
    "ranks(None)": "ranks must be an integer >= 1, got None",
    "ranks(1, [2])": "ranks must be an integer >= 1, got [2]",
    "ranks(1, 2, 0)": "ranks must be an integer >= 1, got 0",
    "ranks": "needs a number of ranks: @pytest.mark.ranks(4), or several: @pytest.mark.ranks(1, 2, 4)",
    "ranks([])": "@pytest.mark.ranks needs a number of ranks",
    "ranks(10**9)": "1,000,000,000 simulated ranks require at least",
    "ranks(4, clusters='laptop')": "@pytest.mark.ranks has no option 'clusters'. Did you mean cluster?",
    "ranks(4, n=2)": "@pytest.mark.ranks has no option 'n'. It has launch's: cluster, seed, schedule",
    "ranks(4, backend='gloo')": "no option 'backend': all tests run on that of `pytest --ranks-backend`",
    "ranks(4, cluster='none')": "@pytest.mark.ranks: cluster must be a hardware.Cluster or one of 'laptop'",
    "ranks(9, cluster='A100 node')": "the cluster has 1 node x 8 devices = 8, but 9 ranks were requested",
    "ranks(4, seed=-1)": "seed must be an integer from 0 to 2**64 - 1, got -1",
    "ranks(4, only=[7])": "only must be a subset of ranks 0 to 3, with fake=True, got [7]",
    "ranks(4, observe=None)": 'observe must be True, False or "communication", got None',
}


def test_nonsense_is_refused(tests):
    files = {
        f"test_{number}": f"import pytest\n@pytest.mark.{mark}\ndef test_x(): pass"
        for number, mark in enumerate(NONSENSE)
    }
    ran = tests("", **files)
    assert ran.outcomes == {"errors": len(NONSENSE)} and ran.status == pytest.ExitCode.INTERRUPTED
    for number, words in enumerate(NONSENSE.values()):
        error = ran.between(f"test_{number}.py::test_x: ", "")
        assert words in error, error
    assert "Traceback" not in ran.text and "plugin.py" not in ran.text


def test_async_is_refused(tests):
    ran = tests("@pytest.mark.ranks(2)\nasync def test_x(): pass")
    assert "runs regular functions, and this one is async: write `def`, with asyncio.run(...) in it" in ran.text
    assert ran.outcomes == {"errors": 1}


@pytest.mark.parametrize(
    ("mark", "words"),
    [("ranks(1, 2)", "has several sizes, [1, 2], which only a function or method"), ("ranks(0)", "got 0")],
)
def test_methods_of_unittest_have_one_size(tests, mark, words):
    ran = tests(f"import unittest\n@pytest.mark.{mark}\nclass TestIt(unittest.TestCase):\n    def test_x(self): pass")
    assert words in ran.text and ran.status == pytest.ExitCode.USAGE_ERROR
