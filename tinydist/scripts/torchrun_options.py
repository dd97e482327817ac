"""torchrun's options, read by torch's own parser, and what they mean for ranks that are simulated in one process.

placement   --nproc-per-node, --nnodes: so many ranks, those of all nodes
program     the script and its arguments, -m, --run-path
environment --master-addr, --master-port, --rdzv-id, --role, --max-restarts, --virtual-local-rank
output      --local-ranks-filter: only these ranks print
fulfilled   rendezvous, --standalone, --node-rank: the ranks of all nodes meet in this process
no effect   IGNORED below: one line says so
refused     all others that are set
"""

import os
from unittest.mock import patch

from torch.distributed.run import get_args_parser

from .placement import Placement

USED = {"nproc_per_node", "nnodes", "module", "run_path", "master_addr", "master_port", "rdzv_id"}
USED |= {"role", "max_restarts", "virtual_local_rank", "local_ranks_filter"}
FULFILLED = {"rdzv_backend", "rdzv_endpoint", "rdzv_conf", "standalone", "node_rank", "local_addr"}
IGNORED = {"monitor_interval", "start_method", "event_log_handler", "log_dir", "redirects", "tee", "logs_specs"}
IGNORED |= {"duplicate_stdout_filters", "duplicate_stderr_filters", "numa_binding", "signals_to_handle"}
IGNORED |= {"shutdown_timeout"}
WHY_NOT = {"no_python": "simulated ranks are threads of this Python process, so the program must be Python"}


def torchrun_parser():
    parser = get_args_parser()
    for action in parser._actions:
        action.help = action.help or "arguments of the script"  # torch says nothing there
    return parser


def option(name):
    return "--" + name.replace("_", "-")


def options_set(chosen):
    """Names of torchrun's options that have another value than their default, also by PET_ variables."""
    with patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith("PET_")]:
            del os.environ[name]
        defaults = vars(torchrun_parser().parse_args(["script"]))
    program = {"training_script", "training_script_args"}
    return [name for name in defaults if name not in program and getattr(chosen, name) != defaults[name]]


def check(chosen):
    """Refuse what cannot be done; returns the line that says what has no effect, or None."""
    given = options_set(chosen)
    for name in given:
        if name not in USED | FULFILLED | IGNORED:
            why = WHY_NOT.get(name, "not known; --backend gloo passes it to torchrun")
            raise ValueError(f"run: {option(name)} is not supported on simulated ranks: {why}")
    ignored = [option(name) for name in given if name in IGNORED]
    ignored += ["--max-restarts"] if chosen.max_restarts > 0 else []
    return f"run: no effect on simulated ranks: {', '.join(ignored)}" if ignored else None


def placement(chosen, cluster, gpus):
    return Placement(nodes(chosen.nnodes), processes(chosen.nproc_per_node, cluster, gpus), cluster)


def nodes(text):
    """``"2"``, or ``"1:4"``: of a range, as many as must be there before torchrun begins."""
    least, _, most = text.partition(":")
    if not all(part.isdecimal() and int(part) for part in (least, most or least)) or int(most or least) < int(least):
        raise ValueError(f"run: --nnodes must be an integer >= 1 or a range MIN:MAX of these, got {text!r}")
    return int(least)


def processes(text, cluster, gpus):
    if text.isdecimal() and int(text):
        return int(text)
    if text == "gpu" and not gpus:
        raise ValueError("run: --nproc-per-node gpu requires --gpus, one process for each GPU of a node of its cluster")
    if text in ("gpu", "auto") and gpus:
        return cluster.devices_per_node if cluster else 8
    if text in ("cpu", "auto"):
        return os.cpu_count()
    raise ValueError(f"run: --nproc-per-node must be an integer >= 1, auto, cpu or gpu, got {text!r}")


def local_ranks(text):
    """The local ranks that print; None: all."""
    if not all(part.isdecimal() for part in text.split(",") if text):
        raise ValueError(f"run: --local-ranks-filter must be integers separated by commas, got {text!r}")
    return {int(part) for part in text.split(",")} if text else None


def variables_for(chosen, where):
    return variables(
        where, chosen.master_addr, chosen.master_port, chosen.rdzv_id, chosen.role, chosen.max_restarts
    ) | ({"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "{local_rank}"} if chosen.virtual_local_rank else {})


def variables(where, address, port, run_id, role, max_restarts):
    """What torchrun sets besides what each launch sets (rank_state.environment); {rank} is the rank."""
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port or 29500),
        "GROUP_WORLD_SIZE": str(where.nodes),
        "ROLE_NAME": role,
        "ROLE_RANK": "{rank}",
        "ROLE_WORLD_SIZE": str(where.ranks),
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": str(max_restarts),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
