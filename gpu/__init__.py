"""What needs GPUs: ``make gpu`` runs it on all that this machine has, and writes one report.

    parts.py        the list: what runs, on how many devices at least
    starts.py       launch from a notebook, and under torchrun
    collectives.py  ring, tree, halving beside the backend's own
    training.py     a step of a GPT: DDP, ZeRO, mixed precision beside torch's own; the ledger and the clock beside both
    pipeline.py     1F1B beside torch's own
    kernels.py      flash attention beside torch's own
    report.py       Markdown and JSON

Every part is a plain torch.distributed program: on processors, with gloo or on simulated ranks, it is the same one.
"""
