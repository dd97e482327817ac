"""A failure on ranks, as pytest shows it: the test's own lines, the rank, its locals, what the other ranks did."""

import re

import pytest

pytest_plugins = ["pytester"]


def test_an_assert_is_explained(tests):
    source = """
@pytest.mark.ranks(4)
def test_sum(rank):
    total = torch.tensor(float(rank))
    dist.all_reduce(total)
    assert total.tolist() == (6 if rank != 1 else 7)
"""
    ran = tests(source, "-l")
    assert ran.outcomes == {"failed": 1}
    shown = ran.between("rank = 1", "test_it.py:8")
    assert (
        re.sub("<built-in.*0x[0-9a-f]+>", "<tolist>", shown)
        == """\
rank = 1

    @pytest.mark.ranks(4)
    def test_sum(rank):
        total = torch.tensor(float(rank))
        dist.all_reduce(total)
>       assert total.tolist() == (6 if rank != 1 else 7)
E       assert 6.0 == 7
E        +  where 6.0 = <tolist>()
E        +    where <tolist> = tensor(6.).tolist
E       on rank 1 of 4

rank       = 1
total      = tensor(6.)

test_it.py:8: AssertionError"""
    )


def test_what_other_ranks_did_is_said(tests):
    source = """
@pytest.mark.ranks(6)
def test_it(rank):
    if rank == 4: raise ValueError("other words")
    assert rank not in (1, 2)
    dist.barrier()
"""
    ran = tests(source)
    assert (
        ran.between("E       assert", "E         at")
        == """\
E       assert 1 not in (1, 2)
E       on rank 1 of 6
E       rank 2 failed on the same line, too
E       rank 4 failed, too: ValueError: other words (test_it.py, line 6)
E       ranks 0, 3, 5 wait in barrier(), call 1 on the world of ranks 0-5
E         missing: ranks 1-2, 4
E         at test_it.py, line 8, in test_it: dist.barrier()"""
    )


def test_a_deadlock_is_its_report(tests):
    source = """
@pytest.mark.ranks(3)
def test_it(rank):
    if rank:
        dist.barrier()
"""
    ran = tests(source)
    assert (
        ran.between("tinydist.simulator", "  rank 0: returned")
        == """\
tinydist.simulator.deadlock.DeadlockError: no rank can run: 2 of 3 ranks wait for calls that can never complete
  ranks 1-2 wait in barrier(), call 1 on the world of ranks 0-2
    missing: rank 0
    at test_it.py, line 7, in test_it: dist.barrier()
  rank 0: returned"""
    )
    assert "on_ranks.py" not in ran.text and "FAILED test_it.py::test_it - tinydist.simulator.deadloc" in ran.text


def test_errors_of_the_library_and_of_torch_end_at_the_tests_line(tests):
    source = """
@pytest.mark.ranks(2)
def test_mismatch(rank):
    dist.all_reduce(torch.ones(1 + rank))

@pytest.mark.ranks(1)
def test_exit():
    sys.exit(0)
"""
    ran = tests(source)
    assert ran.outcomes == {"failed": 2}
    assert "MismatchError: call 1 on the world of ranks 0-1: the shapes differ" in ran.text
    assert "RuntimeError: the test called sys.exit(0)" in ran.text
    assert "site-packages" not in ran.text and "tinydist/" not in ran.text.replace("tinydist/testing/plugin", "")


def test_skips_and_expected_failures(tests):
    source = """
@pytest.mark.ranks(3)
def test_skip(): pytest.skip("no reason")

@pytest.mark.ranks(3)
def test_one_skips(rank):
    if rank == 1: pytest.skip("one")
    dist.barrier()

@pytest.mark.ranks(3)
def test_one_fails(rank):
    if rank == 1: pytest.skip("one")
    assert rank == 0

@pytest.mark.ranks(3)
def test_import(): pytest.importorskip("no_such_module")

@pytest.mark.ranks(3)
def test_xfail(): pytest.xfail("known")

@pytest.mark.xfail(raises=ZeroDivisionError)
@pytest.mark.ranks(3)
def test_raises(): 1 / 0

@pytest.mark.skipif(True, reason="never")
@pytest.mark.ranks(3)
def test_never(): pass

@pytest.mark.ranks(3)
def test_fail(): pytest.fail("in words")
"""
    ran = tests(source, "-rs")
    assert ran.outcomes == {"skipped": 4, "xfailed": 2, "failed": 2}
    assert "SKIPPED [1] test_it.py:5: no reason" in ran.text
    assert "E       assert 2 == 0\nE       on rank 2 of 3" in ran.text and "Failed: in words" in ran.text


def test_prints_are_captured_with_the_rank(tests):
    ran = tests("@pytest.mark.ranks(2)\ndef test_it(rank):\n    print('hello')\n    assert rank")
    assert re.search("Captured stdout call -+\n\\[rank 0] hello\n\\[rank 1] hello\n", ran.text)


def test_methods_and_unittest(tests):
    source = """
import unittest

@pytest.mark.ranks(2)
class TestPlain:
    def setup_method(self): self.x = torch.zeros(1)

    def test_self_is_each_ranks_own(self, rank):
        self.x += rank
        dist.barrier()
        assert self.x == rank

    @staticmethod
    def test_static(rank): assert rank < 2

@pytest.mark.ranks(2)
class TestCase(unittest.TestCase):
    def setUp(self): self.x = torch.ones(1)
    def tearDown(self): assert self.x == 1

    def test_own(self):
        self.x += dist.get_rank()
        dist.all_reduce(self.x)
        self.assertEqual(self.x, 3)

    def test_fails(self): self.assertEqual(dist.get_rank(), 0)
    def test_skips(self): self.skipTest("no")
"""
    ran = tests(source)
    assert ran.outcomes == {"passed": 3, "failed": 1, "skipped": 1}
    assert "E   AssertionError: 1 != 0\nE   on rank 1 of 2\n" in ran.text


def test_the_next_test_works_after_a_failure(tests):
    source = """
@pytest.mark.ranks(2)
@pytest.mark.parametrize("fails", [True, False] * 3)
def test_it(rank, fails):
    if fails and rank: raise ValueError
    dist.barrier()
"""
    assert tests(source).outcomes == {"passed": 3, "failed": 3}


@pytest.mark.parametrize("schedule", ["fifo", "shuffle"])
def test_the_report_is_the_same_every_time(tests, schedule):
    source = f"""
@pytest.mark.ranks(4, schedule={schedule!r})
def test_it(rank):
    dist.barrier()
    assert rank == 9
"""
    first, second = (tests(source).between("E ", "test_it.py") for _ in range(2))
    assert first == second and "failed on the same line, too" in first
