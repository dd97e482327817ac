"""pytest on simulated ranks: ``@pytest.mark.ranks(4)`` runs a test function on each of four ranks.

plugin.py         the hooks: what pytest calls
mark.py           the mark: on how many ranks a test runs, and with which options of launch
fixtures.py       the fixtures: rank, world_size, group, subgroup, rank_tmp_path, launch
on_ranks.py       one test on simulated ranks: which of several failures is reported
on_processes.py   the same test on gloo or nccl processes: everything that it takes is pickled
given.py          Hypothesis: all ranks run the same example
spawned.py        tests that spawn processes themselves, on simulated ranks
own_copies.py     each rank has its own copy of what fixtures made, as a process would
"""
