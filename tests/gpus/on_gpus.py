"""Programs on ranks with pretended GPUs, and what tensors say of their device."""

import tinydist


def on_gpus(program, ranks=1, *args, **options):
    """What ``program(*args)`` returns on rank 0."""
    return tinydist.launch(program, ranks, *args, gpus=True, **options).results[0]


def where(*tensors):
    """The devices of tensors in words: "cuda:0 cpu"."""
    return " ".join(str(tensor.device) for tensor in tensors)


def refusal(function, *args, **kwargs):
    """What it says, of any kind."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return str(error)
    raise AssertionError("it was not refused")
