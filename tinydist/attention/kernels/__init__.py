"""Flash attention as Triton kernels, for real GPUs. ``flash_triton.py`` has the forward as it is read first.

    flash.py        what is called: ``flash_attention_triton``, ``packed_flash_attention_triton``
    tiles.py        which tile a program works on, how it is loaded and stored, which of its pairs are seen
    forward.py      a program for each tile of queries
    backward.py     a program for each tile of keys: five products
    queries.py      the gradient of queries without atomics, for a result that is the same each time: two products more
    launch.py       what a kernel is given, how many programs there are
    configs.py      which tiles are tried, on which GPU
    loads.py        what a kernel loads, seen by the interpreter
    compiled.py     registers, spills, shared memory and instructions of a kernel, without a GPU

It needs Triton, which is not among the requirements of tinydist: ``make kernels`` installs it.
"""
