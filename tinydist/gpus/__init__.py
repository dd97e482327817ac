"""Pretended GPUs: a program written for CUDA runs on CPU tensors, and each rank's Python sees ``cuda`` devices.

    the program, its libraries, torch's Python     tensor.device is cuda:0, torch.cuda answers, nccl is the backend
    ------------------------------------------     tensors.py, observer.py: cuda arguments become "cpu"
    torch's C++                                    CPU tensors compute the numbers

Where a tensor is, is known by its storage: the ledger holds what is on the GPU, and nothing else. So what mixes host
and GPU raises the error that a GPU would, memory functions answer from the ledger, and copies take time. torch.cuda's
names are replaced while ranks run: those that the cluster and the ledger can answer do, all others are refused by name.
"""
