"""Caches to be written into, call after call, and what the calls leave in them."""

from dataclasses import dataclass

import torch

from tinydist.lab.author import Part, Wrong


@dataclass
class Cache:
    keys: torch.Tensor  # [B, G, slots, d]
    values: torch.Tensor
    lengths: torch.Tensor  # [B]


def inputs(heads, kv_heads, d, lengths, slots, tokens, dtype=torch.float32, unused=10.0):
    """q, k and v, lists of what the calls get, which have so many ``tokens`` each; and a cache. What its slots hold
    behind ``lengths`` is large, or NaN, so that reading it shows."""
    generator, B = torch.Generator().manual_seed(sum(lengths) + slots), len(lengths)

    def made(*shape):
        return torch.randn(B, *shape, d, generator=generator, dtype=dtype)

    cache = Cache(made(kv_heads, slots), made(kv_heads, slots), torch.tensor(lengths))
    for row, length in enumerate(lengths):
        for each in (cache.keys, cache.values):
            each[row, :, length:] *= unused
    return *([made(n, T) for T in tokens] for n in (heads, kv_heads, kv_heads)), cache


def copies(q, k, v, cache):
    """Nothing else is made while the ledger counts."""
    calls = ([each.clone() for each in some] for some in (q, k, v))
    return *calls, Cache(cache.keys.clone(), cache.values.clone(), cache.lengths.clone())


def called(answer, q, k, v, cache, *more):
    """What it returns, of the form that it should have, and the lengths that it leaves."""
    room = {"keys": cache.keys, "values": cache.values}
    out, lengths = answer(q, k, v, cache, *more), cache.lengths
    if not isinstance(out, torch.Tensor) or out.shape != q.shape:
        what = f"shape {list(out.shape)}" if isinstance(out, torch.Tensor) else type_of(out)
        raise Wrong(f"{what} came back, where a tensor like q, of shape {list(q.shape)}, is right")
    for name, before in room.items():
        now = getattr(cache, name)
        if not isinstance(now, torch.Tensor) or (now.shape, now.data_ptr()) != (before.shape, before.data_ptr()):
            raise Wrong(
                f"cache.{name} is another tensor than before, so all of it was copied. There is room for "
                f"{before.shape[2]} tokens in each row: write into it"
            )
    if not isinstance(lengths, torch.Tensor) or lengths.is_floating_point():
        raise Wrong(f"cache.lengths is {type_of(lengths)} now; keep it a tensor of whole numbers, of int64")
    return out, lengths.clone().long()


def type_of(thing):
    if isinstance(thing, torch.Tensor):
        return f"a tensor of {str(thing.dtype).removeprefix('torch.')}"
    return "nothing (None)" if thing is None else f"a {type(thing).__name__}"


def rows_of(cache, used=()):
    """The first so many slots of each row, or all, as views."""
    tensors = {"keys": cache.keys, "values": cache.values}
    return {
        f"row {row} of cache.{name} [slots, G, d]": each[row, :, :count].transpose(0, 1)
        for name, each in tensors.items()
        for row, count in enumerate(used or [None] * len(each))
    }


class Slots(Part):
    """Those of a cache, of which each row writes its own."""

    def general(self, trial, right):
        """Which slots have changed, in the first row where others should?"""
        mine, its = self.changed(trial), self.changed(right)
        wrong = [
            f"{row} has changed in slots {mine[row]}, and should in {its[row]}" for row in its if mine[row] != its[row]
        ]
        return f"{wrong[0]}: behind its own last token" if wrong else ""

    def changed(self, trial):
        before, now = rows_of(trial.case.arguments(0)[3]), self.seen(trial)
        return {
            row: [i for i, slot in enumerate(then) if (slot != now[0, row][i]).any()] for row, then in before.items()
        }


NAN = (
    "NaN, where unused slots hold NaN, as torch.empty may leave it: their weights are 0, but 0 times NaN is NaN. A "
    "mask on the scores hides a key and not its value: let each row read its own slots"
)

OVERFLOW = (
    "NaN, and no argument holds any: e to the power of a large score overflows, and of a low one is 0. Subtract each "
    "row's largest score first, or take softmax"
)


class Results(Part):
    """Of steps: finite, whatever unused slots hold."""

    def general(self, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        if any(each.isnan().any() and not its[place].isnan().any() for place, each in mine.items()):
            return NAN if trial.case.arguments(0)[3].keys.isnan().any() else OVERFLOW
        return super().general(trial, right)


class VariedResults(Results):
    """NaN is the same, whatever led to it."""

    def trust(self, exercise, trial, mistake, how, earlier):
        if mistake in self.variants and any(each.isnan().any() for each in self.seen(trial).values()):
            return None, ()
        return super().trust(exercise, trial, mistake, how, earlier)


class VariedSlots(Slots):
    """Of a cache."""
