"""Changes the state of the package, and communicates in between."""

import sys

import torch.distributed as dist

from . import state


def main(who):
    dist.init_process_group("gloo")
    state.rank = dist.get_rank()
    for _ in range(state.rank + 1):
        state.seen.append("step")
    dist.barrier()
    assert state.rank == dist.get_rank() and state.seen.count("step") == state.rank + 1
    print(f"{who}: rank {state.rank} has seen {len(state.seen)}, {sys.argv[1:]}, {__package__}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main("the module")
