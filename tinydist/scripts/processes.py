"""``--backend gloo``: the script on real processes, which torch's own torchrun starts, an agent for each node."""

import socket
import subprocess
import sys

from .torchrun_options import nodes, option, options_set

SIMULATED_ONLY = {
    "gpus": False,
    "fake": False,
    "value": None,
    "cluster": None,
    "seed": 0,
    "schedule": "fifo",
    "report": None,
}
WHERE = {"nnodes", "node_rank", "rdzv_backend", "rdzv_endpoint", "standalone", "master_addr", "master_port"}


def run(chosen):
    """The exit status: of the first agent that failed."""
    idle = [option(name) for name, default in SIMULATED_ONLY.items() if getattr(chosen, name) != default]
    if idle:
        raise ValueError(f"run: {', '.join(idle)}: supported on simulated ranks only, got --backend gloo")
    agents = [subprocess.Popen(words) for words in commands(chosen)]
    return max(abs(agent.wait()) for agent in agents)


def commands(chosen):
    given, several = options_set(chosen), nodes(chosen.nnodes)
    words = [word_of(name, getattr(chosen, name)) for name in given if several == 1 or name not in WHERE]
    program = [chosen.training_script, *chosen.training_script_args]
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    if several == 1:
        return [[*torchrun, *words, *program]]
    where = [f"--nnodes={several}", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    return [[*torchrun, *words, *where, f"--node-rank={node}", *program] for node in range(several)]


def word_of(name, value):
    if value is True:
        return option(name)
    return f"{option(name)}={','.join(value) if isinstance(value, list) else value}"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
