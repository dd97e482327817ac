"""``%%ranks`` in a real kernel: the stop button, after which the kernel and its ranks work."""

import pytest
from real_kernel import Kernel

WORLDS = {"simulated": "2 --keep", "gloo": "2 --keep --backend gloo"}
STOPPED = {
    "in a loop": "print('begun')\nwhile True:\n    pass",
    "in a wait": "if dist.get_rank() == 0:\n    print('begun')\n    while True: pass\ndist.barrier()",
}


@pytest.fixture(scope="module")
def kernel():
    kernel = Kernel()
    try:
        assert kernel.run("%load_ext tinydist\nimport torch.distributed as dist") == ("", "", None)
        yield kernel
    finally:
        kernel.stop()


@pytest.mark.parametrize("where", STOPPED)
def test_stop(kernel, where):
    line = WORLDS["simulated"]
    assert kernel.run(f"%%ranks {line}\nmine = dist.get_rank()") == ("", "", None)
    _, _, error = kernel.run(f"%%ranks {line}\n{STOPPED[where]}", interrupt_at="begun")
    told = "\n".join(error["traceback"])
    assert error["ename"] == "KeyboardInterrupt" and "the next %%ranks cell starts new ones" in told
    assert "rank 0 was running" in told and "site-packages" not in told
    assert kernel.run("%%ranks 2\ndist.get_rank()")[0].startswith("rank 0: 0\nrank 1: 1\n")


def test_stop_of_processes(kernel):
    """Processes' prints come when they end: the rank itself presses stop."""
    line = WORLDS["gloo"]
    assert kernel.run(f"%%ranks {line}\nmine = dist.get_rank()") == ("", "", None)
    press = "import os, signal\nif dist.get_rank():\n    os.kill(kernel, signal.SIGINT)\nwhile True:\n    pass"
    assert kernel.run("import os\nkernel = os.getpid()")[2] is None
    _, _, error = kernel.run(f"%%ranks {line}\n{press}")
    assert error["ename"] == "KeyboardInterrupt"
    assert "The ranks ended and their variables are lost" in "\n".join(error["traceback"])
    out, _, error = kernel.run(f"%%ranks {line}\ndist.get_rank()")
    assert (out, error) == ("rank 0: 0\nrank 1: 1\n", None)
    assert kernel.run("print(ranks[1]._)")[0] == "1\n"
