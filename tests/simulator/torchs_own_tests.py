"""torch's own tests of torch.distributed, which come with torch, each run on simulated ranks."""

import os
import tempfile
import unittest

import torch.distributed as dist
from pytest import MonkeyPatch

import tinydist

RANKS = 8  # fewer, and torch skips some

SETTINGS = {"BACKEND": "gloo", "WORLD_SIZE": str(RANKS)}

with MonkeyPatch.context() as patch:  # it reads them while it is imported
    for name, value in SETTINGS.items():
        patch.setenv(name, value)
    from torch.testing._internal.common_distributed import TEST_SKIPS
    from torch.testing._internal.distributed import distributed_test

WHY = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}


class OnOneRank(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """One rank's part in a test."""

    def __init__(self, name):
        super().__init__(name)
        self.rank = dist.get_rank()
        self.file_name = os.devnull
        self.store, self.barriers = dist.distributed_c10d._get_default_store(), 0

    def call_dist_op(self, *args, **options):
        """Without a look at the profiler: what it looks for, the gloo library's threads record."""
        super().call_dist_op(*args, **options | {"expect_event": False})

    def _barrier(self, *args, **options):
        """torch's own sleeps until a file of each process is there."""
        self.barriers += 1
        if self.store.add(f"arrived {self.barriers}", 1) == RANKS:
            self.store.set(f"all arrived {self.barriers}", "")
        self.store.wait([f"all arrived {self.barriers}"])


NAMES = sorted(name for name in dir(OnOneRank) if name.startswith("test_"))


def run(name):
    """Why torch skips the test here; None if it passes. What fails is raised."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "barrier"))
        os.mkdir(os.path.join(folder, "test_dir"))
        (why, *_) = tinydist.launch(part, RANKS, name, folder, init=False).results
    return why


def part(name, folder):
    os.environ |= SETTINGS | {"TEMP_DIR": folder}
    dist.init_process_group("gloo")
    try:
        getattr(OnOneRank(name), name)()
    except unittest.SkipTest as skip:
        return str(skip)
    except SystemExit as end:
        return WHY[end.code]
    return None
