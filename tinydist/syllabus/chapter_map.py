"""The map of the chapters: which chapter needs which. The first notebook of all shows it."""

from ..visuals.graph import graph

NEEDS = {  # name -> numbers of the chapters that an arrow comes from
    "00 Start": "",
    "01 Ranks": "00",
    "01b Hangs": "01",
    "02 Collectives": "01",
    "03 Cost": "02",
    "03b Clusters": "03",
    "03c NCCL": "03b",
    "03d Training": "03",
    "04 Precision": "03",
    "04b FP8, FP4": "04",
    "05 Data parallel": "03",
    "05b Scaling": "03c 05",
    "06 ZeRO": "04 05",
    "06b In practice": "03d 06",
    "07 Tensor": "06",
    "07b Sequence": "07",
    "08 Pipeline": "05",
    "08b Schedules": "08",
    "09 Heads": "03",
    "09b Latents": "09 07",
    "10 Flash": "09",
    "10b Kernels": "10",
    "11 Three dimensions": "07 08",
    "11b Configurations": "11",
    "12 Real systems": "11",
    "12b Machines": "01b 12",
    "13 Planning": "11",
    "13b Plans": "13",
    "14 Serving": "09",
    "14b Many": "07 14",
    "15 Your program": "05",
    "15b Forecast": "15",
    "16 Long context": "03d 10",
    "16b Parallel": "07b 16",
    "17 Experts": "03b 05",
    "18 Fewer bytes": "03 05",
    "19 Less data": "03d 05",
    "20 Compilers": "03 07",
    "21 Quantization": "04 09",
    "21b GGUF": "21",
    "22 Tools": "12 14",
}


def names_and_arrows():
    """Names by number, and arrows, (number, number)."""
    names = {name.split()[0]: name for name in NEEDS}
    return names, [(needed, name.split()[0]) for name, needs in NEEDS.items() for needed in needs.split()]


def chapter_map():
    """A picture: an arrow leads from each chapter to those that use it."""
    return graph(*names_and_arrows())
