"""``--simulate-spawn``: tests that spawn processes, unchanged, on simulated ranks."""

pytest_plugins = ["pytester"]


def test_spawn(tests):
    source = """
import torch.multiprocessing as mp
from torch.multiprocessing import spawn

def program(rank, size, totals, factor=1):
    dist.init_process_group("gloo", init_method="tcp://localhost:29500", rank=rank, world_size=size)
    total = torch.tensor(float(rank))
    dist.all_reduce(total)
    totals[rank] = total
    assert "RANK" not in os.environ
    assert total.tolist() == 6 * factor

@pytest.mark.parametrize("start", [mp.spawn, spawn])
def test_spawn(start):
    totals = torch.zeros(4)
    start(program, args=(4, totals), nprocs=4)
    assert totals.tolist() == [6, 6, 6, 6]

def test_start_processes():
    assert mp.start_processes(program, (4, torch.zeros(4)), nprocs=4, join=False, start_method="fork").join()

def leaves(rank): sys.exit(0 if rank else None)

def test_exit(): mp.spawn(leaves, nprocs=2)

def test_fails():
    mp.spawn(program, args=(4, torch.zeros(4), 2), nprocs=4)
"""
    ran = tests(source, "--simulate-spawn")
    assert ran.outcomes == {"passed": 4, "failed": 1}
    assert (
        "E       assert 6.0 == (6 * 2)" in ran.text and "E       on rank 0 of 4\nE       ranks 1-3 failed" in ran.text
    )
    assert "on_ranks.py" not in ran.text and "spawned.py" not in ran.text


def test_the_bases_of_torchs_own_tests(tests):
    source = """
from torch.testing._internal.common_distributed import MultiProcessTestCase, MultiThreadedTestCase, skip_if_lt_x_gpu

class Sums:
    world_size = 3

    def test_sum(self):
        total = torch.tensor(self.rank)
        dist.all_reduce(total)
        self.assertEqual(total, 3)

    def test_fails(self):
        self.assertEqual(self.rank, 0)

class TestProcesses(Sums, MultiProcessTestCase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def test_sum(self):
        store = dist.FileStore(self.file_name, self.world_size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)
        super().test_sum()

    @skip_if_lt_x_gpu(4)
    def test_gpus(self): pass

class TestThreads(Sums, MultiThreadedTestCase):
    def setUp(self):
        super().setUp()
        self._spawn_threads()
"""
    ran = tests(source, "--simulate-spawn", "-rs")
    assert ran.outcomes == {"passed": 2, "failed": 2, "skipped": 1}
    assert ran.text.count("E       on rank 1 of 3\nE       rank 2 failed on the same line, too") == 2


def test_on_processes_it_is_refused(tests):
    ran = tests("", "--simulate-spawn", "--ranks-backend", "gloo")
    assert "--simulate-spawn runs on simulated ranks, and the backend is gloo" in ran.text
