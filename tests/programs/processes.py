"""Processes that are started and joined one by one, forked: they see the variables of the script; they also meet
elsewhere than in torch.distributed."""

import os

import torch
import torch.distributed as dist
from torch import multiprocessing as mp

settings = {"factor": 1}


def send_and_receive(rank):
    tensor = torch.zeros(1)
    if rank == 0:
        tensor += settings["factor"]
        dist.send(tensor, dst=1)
    else:
        dist.recv(tensor, src=0)
    return tensor.item()


def begin(rank, world_size, event, barrier, lock, results):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29501", rank=rank, world_size=world_size)
    value = send_and_receive(rank)
    if rank == 0:
        event.wait()
    else:
        event.set()
    barrier.wait()
    with lock:
        results.put((rank, value))


if __name__ == "__main__":
    settings["factor"] = 7
    shared = mp.Event(), mp.Barrier(2), mp.Lock(), mp.Queue()
    processes = [mp.Process(target=begin, args=(rank, 2, *shared)) for rank in range(2)]
    for process in processes:
        process.start()
    print("first", shared[-1].get())
    for process in processes:
        process.join()
    print("second", shared[-1].get(timeout=1), "exit codes", [process.exitcode for process in processes])
