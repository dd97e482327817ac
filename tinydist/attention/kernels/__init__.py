"""Optimized flash attention kernels in Triton. ``flash_triton.py`` has a simple forward kernel to read first.

    flash.py        the public functions: ``flash_attention_triton``, ``packed_flash_attention_triton``
    tiles.py        which tile a program works on, how it is loaded and stored, which of its pairs are seen
    forward.py      one program per tile of queries
    backward.py     one program per tile of keys: five matmuls; or, deterministic, two programs and seven
    launch.py       kernel arguments, grid and autotuning
    configs.py      autotuning configurations per GPU
    loads.py        counts a kernel's loads, under Triton's interpreter
    stores.py       the same of its stores, and where NaN begins
    compiled.py     registers, spills, shared memory and instructions of a kernel, without a GPU

It needs Triton, which is not among the requirements of tinydist: ``make kernels`` installs it.
"""
