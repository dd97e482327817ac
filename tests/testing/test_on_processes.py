"""The same tests on gloo processes."""

import os

pytest_plugins = ["pytester"]


def test_on_gloo(tests):
    source = """
import threading, unittest
from hypothesis import given, strategies as st

class Ours: number = 3

@pytest.fixture
def ours(): return Ours()

@pytest.fixture
def lock(): return threading.Lock()

@pytest.mark.ranks(2)
def test_fixtures(rank, ours, subgroup, rank_tmp_path, monkeypatch):
    monkeypatch.setenv("OF_A_TEST", str(rank))
    assert ours.number == 3 and type(dist.group.WORLD).__name__ == "ProcessGroup"
    print(f"pid {os.getpid()}")

@pytest.mark.ranks(2)
class TestCase(unittest.TestCase):
    def setUp(self): self.x = torch.ones(1)
    def test_method(self):
        dist.all_reduce(self.x)
        self.assertEqual(self.x, 2)
        assert "OF_A_TEST" not in os.environ

@pytest.mark.ranks(2)
@given(x=st.integers())
def test_given(x, rank):
    examples = [None, None]
    dist.all_gather_object(examples, x)
    assert examples == [x, x]

@pytest.mark.ranks(2)
@pytest.mark.parametrize("expected", [pytest.approx(1 / 3)])
def test_parameter(expected): assert 0.333333333 == expected

@pytest.mark.ranks(2, fake=True)
def test_fake(): pass

@pytest.mark.ranks(2)
def test_lock(lock): pass

@pytest.mark.ranks(2)
def test_capsys(capsys): pass
"""
    ran = tests(source, "--ranks-backend", "gloo", "-rsP")
    assert ran.outcomes == {"passed": 4, "skipped": 1, "failed": 2}
    assert "fake=True: on simulated ranks only" in ran.text
    pids = {line.split()[-1] for line in ran.text.splitlines() if "] pid " in line}
    assert len(pids) == 2
    words = "@pytest.mark.ranks on processes: test_lock: fixture or parameter 'lock' (lock) cannot be pickled. Make it"
    assert words in ran.text and "fixture or parameter 'capsys' (CaptureFixture) cannot be pickled" in ran.text


def test_failures_on_gloo(tests):
    source = """
@pytest.mark.ranks(2)
def test_assert(rank):
    assert rank == 0 or rank + 1 == 3

@pytest.mark.ranks(2)
def test_skip():
    pytest.skip("no reason")
"""
    ran = tests(source, "--ranks-backend", "gloo", "-rs")
    assert ran.outcomes == {"failed": 1, "skipped": 1}
    assert ran.between("on rank 1", "AssertionError").endswith("""\
    assert rank == 0 or rank + 1 == 3
AssertionError: assert (1 == 0 or (1 + 1) == 3)""")
    assert "SKIPPED [1] test_it.py:8: no reason" in ran.text


def test_the_variable_is_as_it_was(tests, monkeypatch):
    source = "def test_it(): assert os.environ['TINYDIST_BACKEND'] == 'gloo'"
    assert tests(source, "--ranks-backend", "gloo").outcomes == {"passed": 1}
    assert "TINYDIST_BACKEND" not in os.environ
