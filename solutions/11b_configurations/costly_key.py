"""The key that costs the memory: what each change saves, on the rank that is fullest."""

import copy
from functools import partial

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Malformed, Varied, exercise, kind, mistake

STAGE, MICRO = "zero_optimization.stage", "train_micro_batch_size_per_gpu"
DEVICE, BUCKET = "zero_optimization.offload_optimizer.device", "zero_optimization.reduce_bucket_size"
INTERVAL = "pipeline.activation_checkpoint_interval"
ALL = {MICRO: 1, STAGE: 3, DEVICE: "cpu", BUCKET: 10**6, INTERVAL: 1}
SAID = {"train_batch_size": 48, MICRO: 8, "bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}


def held(parameters, row, ranks, said):
    """Bytes of a rank that has so many parameters: states, buckets, activations. ``row``: of a row, in all layers."""
    zero = said.get("zero_optimization", {})
    stage, offloaded = zero.get("stage", 0), zero.get("offload_optimizer", {}).get("device") == "cpu"
    shards = [ranks if stage >= needed else 1 for needed in (3, 2, 1)]
    weights, gradients, states = (
        each * parameters // shard for each, shard in zip((2, 2, 0 if offloaded and stage else 12), shards)
    )
    buckets = 2 * zero.get("reduce_bucket_size", 5 * 10**8) if stage in (1, 2) else 0
    kept = 4 if said.get("pipeline", {}).get("activation_checkpoint_interval") else 1
    return weights + gradients + states + buckets + said[MICRO] * row // kept


def case(about, ranks, parameters, rows, cheaper=ALL, zero=SAID["zero_optimization"], **said):
    """``parameters`` and ``rows``: of rank 0, 1, ...: they have unlike layers."""

    said = SAID | {"zero_optimization": zero} | said
    peaks = [partial(held, parameters[r % len(parameters)], rows[r % len(rows)], ranks) for r in range(ranks)]

    def arguments(rank):
        return copy.deepcopy(said), dict(cheaper), peaks[rank], peaks

    return Case(ranks, arguments, about)


G, M = 10**9, 10**6


def test_cases():
    yield case("a small model, with large activations", 1, [300 * M], [2 * G])
    yield case("a large model", 2, [4 * G], [G])
    yield case("large buckets", 2, [100 * M], [50 * M], zero={"stage": 2})
    yield case("ranks with unlike layers", 3, [6 * G, G, G], [200 * M, 900 * M, 4 * G], zero={"stage": 1})
    yield case("one rank is the fullest before, another after", 2, [4 * G, 2 * G], [100 * M, 4 * G])
    yield case("unlike layers, of which one has the embedding", 4, [2 * G, G, G, 3 * G], [G, G, G, G])
    yield case("two changes that cannot save", 3, [G], [G], {STAGE: 1, MICRO: 8})
    yield case("a change that costs more than the other saves", 2, [M], [10 * M], {STAGE: 1, MICRO: 4}, {"stage": 0})
    yield case("changes that cost", 2, [M, 2 * M], [M], {STAGE: 1, MICRO: 9}, {"stage": 0})
    yield case("a section that is not there", 2, [2 * G], [M], {INTERVAL: 1, DEVICE: "cpu"}, {"stage": 2})
    yield case("two that save the same", 1, [M], [G], {BUCKET: 10**6, MICRO: 2, INTERVAL: 1})
    yield case("two that save the same, in another order", 2, [M], [G], {INTERVAL: 1, BUCKET: 10**6, MICRO: 2})


def changed(said, path, value):
    section, _, rest = path.partition(".")
    return said | {section: changed(said.get(section, {}), rest, value) if rest else value}


def found_by(answer, said, cheaper, peak, peaks):
    configurations = [copy.deepcopy(said), *(changed(said, *each) for each in cheaper.items())]
    others = []

    def asked(configuration):
        others.extend([copy.deepcopy(configuration)] * (configuration not in configurations))
        return peak(configuration)

    found = answer(said, cheaper, asked)
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise Malformed(f"it returned {kind(found)}, where (key, bytes saved) is right")
    path, saved = found
    if path is not None and path not in cheaper:
        raise Malformed(f"it says {path!r}, which is none of the keys that may change, {', '.join(cheaper)}")
    saved = saved.item() if isinstance(saved, torch.Tensor) else saved
    if type(saved) not in (int, float):
        raise Malformed(f"the bytes saved are {kind(saved)}, where a number is right")
    savings = [[each(configurations[0]) - each(one) for one in configurations[1:]] for each in peaks]
    fullest = [max(each(one) for each in peaks) for one in configurations]
    own = [rank for rank, of_rank in enumerate(savings) if path and saved == of_rank[[*cheaper].index(path)]]
    real = fullest[0] - fullest[1 + [*cheaper].index(path)] if path else 0
    whose = "".join(f", as rank {rank} saves by itself" for rank in own[:1] if saved != real)
    if 0 < abs(saved - real) <= abs(real) / 2**20:
        whose = ", rounded: float32 has all whole numbers up to 2^24 only, so keep bytes in torch.int64"
    what = f"{path}: {abs(real):,} bytes {'less' if real >= 0 else 'more'} on the fullest rank" if path else "None"
    tried = f"also {others[0]}" if others else "the one that was said, and with one key changed"
    return {"what peak is asked for": tried, "the key": what, "the bytes saved": f"{saved:,.15g}{whose}"}


FRESH = "        trial = copy.deepcopy(said)\n"
MAX = "dist.all_reduce(peaks, op=dist.ReduceOp.MAX)"
SAVED = "saved = peaks[0] - peaks[1:]"


@exercise(
    title="The key that costs the memory",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    program=found_by,
    check_communication=False,  # what is sent are whole numbers, which nothing changes on the way
    targets=[
        Varied(
            "the key and the bytes, the same on all ranks: of 1 to 4, which hold unlike layers",
            variants=[
                (
                    "This is the rank that holds least: the fullest one decides",
                    "dist.ReduceOp.MAX",
                    "dist.ReduceOp.MIN",
                ),
                (
                    "These are means over the ranks: the fullest one decides",
                    MAX,
                    "dist.all_reduce(peaks)\n    peaks //= dist.get_world_size()",
                ),
                (
                    "This is the least that any rank saves. Find the fullest rank of each configuration first, then "
                    "subtract",
                    f"    {MAX}\n    {SAVED}\n",
                    f"    {SAVED}\n    dist.all_reduce(saved, op=dist.ReduceOp.MIN)\n",
                ),
                (
                    "The configuration as it is was not asked of all ranks: its peak is that of the fullest rank, too",
                    MAX,
                    "now = peaks[:1].clone()\n    dist.all_reduce(peaks, op=dist.ReduceOp.MAX)\n    peaks[:1] = now",
                ),
                (
                    "Only the configuration as it is was asked of all ranks: each peak is that of the fullest rank",
                    MAX,
                    "dist.all_reduce(peaks[:1], op=dist.ReduceOp.MAX)",
                ),
                (
                    "A section is put in place of what was said there: its other keys stay as they were said",
                    "place = place.setdefault(section, {})",
                    "place[section] = {}\n            place = place[section]",
                ),
                (
                    'A path is no key: "a.b" is the key b of the section a',
                    '*sections, key = path.split(".")',
                    "sections, key = [], path",
                ),
                (
                    "A section that is not there is to be made, and the key tried: it is left out here",
                    "        place[key] = value\n",
                    "        if key in place:\n            place[key] = value\n",
                ),
                (
                    "What costs more than before saves nothing: this takes the change that is largest in size",
                    "best = int(saved.argmax())",
                    "best = int(saved.abs().argmax())",
                ),
                ("This key saves least", "best = int(saved.argmax())", "best = int(saved.argmin())"),
                (
                    "These are the bytes with the sign turned round: less is a saving",
                    "int(saved[best])",
                    "-int(saved[best])",
                ),
                ("The bytes of the peak before are told, and not what is saved", "int(saved[best])", "int(peaks[0])"),
            ],
        ),
        Bytes(
            "an all-reduce of one whole number for each configuration", "one number for each that you try", fewer=True
        ),
    ],
    mistakes=[
        mistake(
            "This is what a rank of its own would say. A run ends when the fullest rank is out of memory, so the peak "
            "of a configuration is that of the fullest rank",
            MAX,
            "pass",
        ),
        mistake(
            "These are peaks, or savings, added up over ranks. No rank has the memory of another: the fullest one "
            "decides",
            "dist.ReduceOp.MAX",
            "dist.ReduceOp.SUM",
        ),
        mistake(
            "This is the most that any rank saves, and it may not be the fullest one. Find the fullest rank of each "
            "configuration first, then subtract",
            f"    {MAX}\n    {SAVED}\n",
            f"    {SAVED}\n    dist.all_reduce(saved, op=dist.ReduceOp.MAX)\n",
        ),
        mistake(
            "Changes have been added to one another. Try each alone: begin with a new copy of said",
            FRESH + "        *sections",
            "        trial = said if trial is None else trial\n        *sections",
            "    peaks = [peak(said)]\n",
            "    peaks, trial = [peak(said)], None\n    said = copy.deepcopy(said)\n",
        ),
        mistake(
            "The configuration of the caller has changed: dicts in a dict are shared by a flat copy",
            "copy.deepcopy(said)",
            "dict(said)",
        ),
        mistake(
            "Two keys save the same, and this is the last of them: take the first",
            "best = int(saved.argmax())",
            "best = len(saved) - 1 - int(saved.flip(0).argmax())",
        ),
        mistake(
            "A change that saves nothing is no remedy: where none saves, it is (None, 0)",
            "if saved[best] <= 0:",
            "if False:",
        ),
        mistake(
            "This is the peak that is left, and not what is saved",
            "int(saved[best])",
            "int(peaks[1 + best])",
        ),
    ],
    hints=[
        "A key's price is a difference: the peak of the configuration as it is, less the peak with this key changed. "
        "The others stay as they were said.",
        '"zero_optimization.stage".split(".") is a section and a key. A section may be missing: dict.setdefault makes '
        "it. Use a new copy.deepcopy(said) for each key.",
        "Ranks hold unlike layers. Put the peaks of all configurations into one tensor of whole numbers (torch.int64), "
        "and all-reduce it with dist.ReduceOp.MAX. Then subtract.",
    ],
    why="Out of memory is said by one rank, and a configuration has twenty keys. Changing one at a time, and asking "
    "the fullest rank, finds in minutes what guessing does not find in a day.",
)
def costly_key(said, cheaper, peak):
    """Find the key of a configuration that costs the memory. Return (key, bytes), the same on all ranks: the key of
    ``cheaper`` that, changed alone, saves most, and how much it saves; (None, 0) if none saves anything.

    ``cheaper`` is a dict: the path of a key -> its cheaper value, such as {"zero_optimization.stage": 2}. Sections may
    be missing in ``said``, which stays as it is. ``peak(said)`` tells how many bytes this rank would hold with a
    configuration, as a whole number; ranks have unlike layers. What counts is whether the run fits: the peak of a
    configuration is that of the rank that holds most. Of keys that save the same, take the first.
    """
    # ? What would this rank hold, with each key changed alone?
    peaks = [peak(said)]
    for path, value in cheaper.items():
        trial = copy.deepcopy(said)
        *sections, key = path.split(".")
        place = trial
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
        peaks.append(peak(trial))
    # ? What would the fullest rank hold? What is saved?
    peaks = torch.tensor(peaks)
    dist.all_reduce(peaks, op=dist.ReduceOp.MAX)
    saved = peaks[0] - peaks[1:]
    best = int(saved.argmax())
    if saved[best] <= 0:
        return None, 0
    return list(cheaper)[best], int(saved[best])
