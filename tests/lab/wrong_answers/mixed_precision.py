"""Wrong answers to the exercises of 04_mixed_precision: each with the property that rejects it, and what it is told."""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.registered import collection

from tinydist import precision
from tinydist.lab.find import find

WRONG_ANSWERS, wrong = collection()


# round_to_bfloat16


def cleared(bits):
    return (bits & -0x10000).view(torch.float32)


def rounded(x):
    """A right one, but for NaN."""
    bits = x.view(torch.int32)
    return cleared(bits + 0x7FFF + (bits >> 16 & 1))


def right(x):
    return torch.where(x.isnan(), x, rounded(x))


@wrong("round_to_bfloat16", "runs", "it returned nothing (None), where a tensor is right")
def does_nothing(x):
    pass


@wrong("round_to_bfloat16", "values", "Nothing was rounded: x came back.")
def returns_its_input(x):
    return x


@wrong("round_to_bfloat16", "by hand", "a cast (.to, .bfloat16, .half, autocast) makes bfloat16 numbers")
def torchs_cast(x):
    return x.bfloat16().float()


@wrong("round_to_bfloat16", "by hand", "empty makes bfloat16 numbers")
def a_cast_that_hides(x):
    return torch.empty(x.shape, dtype=torch.bfloat16).copy_(x).float()


@wrong("round_to_bfloat16", "by hand", "torch.tensor makes bfloat16 numbers")
def through_a_list(x):
    return torch.tensor(x.tolist(), dtype=torch.bfloat16).float()


@wrong("round_to_bfloat16", "by hand", "torch.tensor makes bfloat16 numbers")
def through_an_old_tensor(x):
    return torch.BFloat16Tensor(x.flatten().tolist()).float().view(x.shape)


@wrong("round_to_bfloat16", "own work", "you call tinydist.precision, where this is solved")
def librarys_own(x):
    return precision.round_to(x, "bf16")


@wrong(
    "round_to_bfloat16",
    "values",
    "The lower half was cut off: that rounds towards zero. Above the middle, the neighbor above is",
)
def truncation(x):
    return cleared(x.view(torch.int32))


@wrong(
    "round_to_bfloat16",
    "values",
    "Ties go away from zero: half was added whatever the upper half is. From an even one a tie goes",
)
def ties_away_from_zero(x):
    return cleared(x.view(torch.int32) + 0x8000)


@wrong(
    "round_to_bfloat16",
    "values",
    "Ties go towards zero: less than half was added. From an odd upper half a tie goes up.",
)
def ties_towards_zero(x):
    return cleared(x.view(torch.int32) + 0x7FFF)


@wrong("round_to_bfloat16", "values", "All goes up that has anything in its lower half.")
def up(x):
    return cleared(x.view(torch.int32) + 0xFFFF)


@wrong("round_to_bfloat16", "by hand", "a cast (.to, .bfloat16, .half, autocast) makes float16 numbers")
def float16(x):
    return x.half().float()


@wrong("round_to_bfloat16", "values", "13 bits were cut off, and 10 of the mantissa are left, as in fp16")
def bits_of_fp16(x):
    bits = x.view(torch.int32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) & -0x2000).view(torch.float32)


@wrong("round_to_bfloat16", "values", "NaN was rounded like a number: that carried it to zero, or cut it down to inf")
def without_care_for_nan(x):
    return rounded(x)


@wrong("round_to_bfloat16", "values", "NaN became inf")
def nan_becomes_inf(x):
    return torch.where(x.isnan(), torch.full_like(x, torch.inf).copysign(x), rounded(x))


@wrong("round_to_bfloat16", "values", "with nothing in the upper half of its mantissa it is inf")
def nan_is_cut(x):
    return torch.where(x.isnan(), cleared(x.view(torch.int32)), rounded(x))


@wrong(
    "round_to_bfloat16", "values", "Subnormals became zero. They are bits as all others: the same addition rounds them."
)
def flushes_subnormals(x):
    return torch.where(x.abs() < 2.0**-126, x * 0.0, right(x))


@wrong("round_to_bfloat16", "values", "Zeros lost their sign: -0 is a number of its own.")
def zeros_without_sign(x):
    return right(x) + 0.0


@wrong(
    "round_to_bfloat16",
    "values",
    "What is too large became the largest number. The carry leads to inf by itself: let it.",
)
def stops_at_the_largest(x):
    largest = cleared(torch.tensor(0x7F7F0000, dtype=torch.int32))
    return torch.where(x.isinf(), x, right(x).clamp(-largest, largest))


@wrong("round_to_bfloat16", "runs", "x itself was changed: view() shares its memory")
def changes_its_input(x):
    bits = x.view(torch.int32)
    bits += 0x7FFF + (bits >> 16 & 1)
    return cleared(bits)


@wrong("round_to_bfloat16", "runs", "it returned int32, where float32 is right: look at the bits as float32 again")
def returns_the_bits(x):
    return right(x).view(torch.int32)


@wrong("round_to_bfloat16", "runs", "the result has shape [6], where [2, 3] is right")
def flattens(x):
    return right(x).flatten() if x.dim() > 1 else right(x)


@wrong("round_to_bfloat16", "runs", "Is there a loop whose condition never becomes false?")
def never_ends(x):
    while True:
        x = x + 1


@wrong(
    "round_to_bfloat16",
    "values",
    "Ties go to the odd neighbor, the wrong way round: one more is added if the last bit that stays",
)
def the_other_ties(x):
    bits = x.view(torch.int32)
    return torch.where(x.isnan(), x, cleared(bits + 0x8000 - (bits >> 16 & 1)))


@wrong(
    "round_to_bfloat16",
    "values",
    "Subnormals became zero, without their sign. They are bits as all others: the same addition",
)
def flushes_to_plus_zero(x):
    return torch.where(x.abs() < 2.0**-126, 0.0, right(x))


@wrong("round_to_bfloat16", "values", "Results that are subnormal became zero. bf16 has subnormals as fp32 has.")
def flushes_results(x):
    return torch.where(right(x).abs() < 2.0**-126, x * 0.0, right(x))


@wrong(
    "round_to_bfloat16",
    "values",
    "What is too large became the largest number of fp32, which bf16 does not have. Right is inf.",
)
def stops_at_the_largest_of_fp32(x):
    largest = torch.finfo(torch.float32).max
    return torch.where(x.isinf(), x, right(x).clamp(-largest, largest))


@wrong(
    "round_to_bfloat16",
    "values",
    "What is too large came back as it was, not rounded. The carry leads to inf by itself: let it.",
)
def keeps_what_overflows(x):
    return torch.where(right(x).isinf(), x, right(x))


@wrong("round_to_bfloat16", "values", "where any NaN is right")
def nan_becomes_zero(x):
    return torch.where(x.isnan(), 0.0, rounded(x))


class Whatever(torch.Tensor):
    """It is what is asked for, it says."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs)
        return torch.zeros(0) if function is torch.Tensor.ne else result


@wrong("round_to_bfloat16", "runs", "it returned an object of type Whatever, where a tensor is right")
def says_that_it_is_right(x):
    return x.as_subclass(Whatever)


# lost_updates


def gaps(weights, updates, format):
    """(to the next number on the side of the update, spacing above)."""
    weights, updates = weights.double(), updates.double()
    exponents = torch.where(weights == 0, format.lowest_exponent, torch.frexp(weights).exponent - 1)
    spacing = 2.0 ** (exponents.clamp(min=format.lowest_exponent) - format.mantissa_bits).double()
    a_power = weights.abs() == spacing * 2**format.mantissa_bits
    closer = a_power & (weights.abs() > format.smallest_normal) & (weights * updates < 0)
    return torch.where(closer, spacing / 2, spacing), spacing


def prediction(lost, half, updates, odd=False):
    times = half / updates.double().abs()
    enough = times.floor() + ~(odd & (times == times.floor()))
    return lost, torch.where(lost, enough.clamp(min=2), 1).long()


def by(limit, ties=True):
    """An answer that compares the update with ``limit(weights, updates, format)``."""

    def answer(weights, updates, format):
        half, size = limit(weights, updates, format), updates.double().abs()
        return prediction(size <= half if ties else size < half, half, updates)

    return answer


def lost_as_it_is(weights, updates, format):
    """Right, and half the gap."""
    gap, spacing = gaps(weights, updates, format)
    size, even = updates.double().abs(), weights.double() / spacing % 2 == 0
    return (size < gap / 2) | (size == gap / 2) & even, gap / 2


@wrong("lost_updates", "runs", "it returned nothing (None), where two tensors are right: lost, steps")
def predicts_nothing(weights, updates, format):
    pass


@wrong("lost_updates", "runs", "lost is of dtype float32, where bool is right")
def returns_what_it_got(weights, updates, format):
    return weights, updates


@wrong("lost_updates", "runs", "lost is an object of type bool, where a tensor of shape [80] is right")
def one_for_all(weights, updates, format):
    return True, 2


@wrong("lost_updates", "runs", "steps has numbers that are not whole")
def steps_that_are_not_whole(weights, updates, format):
    lost, half = lost_as_it_is(weights, updates, format)
    return lost, half / updates.double().abs()


@wrong("lost_updates", "lost", "Nothing is lost, you say.")
def nothing_is_lost(weights, updates, format):
    return torch.zeros_like(weights, dtype=torch.bool), torch.ones_like(weights)


@wrong("lost_updates", "own work", "you call tinydist.precision")
def tries_by_the_library(weights, updates, format):
    return prediction(precision.round_to(weights + updates, format) == weights, weights, updates)


@wrong("lost_updates", "predicted", "makes float16 numbers")
def tries_by_a_cast(weights, updates, format):
    if format.dtype is None:
        return by(lambda w, u, f: w * f.epsilon / 2)(weights, updates, format)
    return prediction((weights + updates).to(format.dtype).float() == weights, weights, updates)


@wrong(
    "lost_updates",
    "lost",
    "The update is compared with epsilon/2, which is half of the spacing at 1: at a weight it is",
)
def epsilon_alone(weights, updates, format):
    return by(lambda w, u, f: torch.full_like(u, f.epsilon / 2).double())(weights, updates, format)


@wrong(
    "lost_updates", "lost", "The update is compared with |weight| epsilon/2. The spacing does not grow evenly with the"
)
def in_proportion_to_the_weight(weights, updates, format):
    return by(lambda w, u, f: w.double().abs() * f.epsilon / 2)(weights, updates, format)


@wrong(
    "lost_updates", "lost", "The update is compared with the whole spacing. The nearest number wins: more than half is"
)
def the_whole_spacing(weights, updates, format):
    return by(lambda w, u, f: gaps(w, u, f)[0], ties=False)(weights, updates, format)


@wrong("lost_updates", "lost", "Below a power of two numbers are twice as")
def same_on_both_sides(weights, updates, format):
    return by(lambda w, u, f: gaps(w, u, f)[1] / 2)(weights, updates, format)


@wrong(
    "lost_updates",
    "lost",
    "Half way, all are lost, you say: a tie goes to the even mantissa, away from a weight whose own",
)
def all_ties_lost(weights, updates, format):
    return by(lambda w, u, f: gaps(w, u, f)[0] / 2)(weights, updates, format)


@wrong(
    "lost_updates",
    "lost",
    "Half way, all are kept, you say: a tie goes to the even mantissa, and stays where that is the",
)
def all_ties_kept(weights, updates, format):
    return by(lambda w, u, f: gaps(w, u, f)[0] / 2, ties=False)(weights, updates, format)


@wrong("lost_updates", "lost", "Ties the wrong way round: the even mantissa wins.")
def ties_to_odd(weights, updates, format):
    gap, spacing = gaps(weights, updates, format)
    size, odd = updates.double().abs(), weights.double() / spacing % 2 == 1
    return prediction((size < gap / 2) | (size == gap / 2) & odd, gap / 2, updates)


@wrong(
    "lost_updates",
    "lost",
    "The spacing goes on to shrink below the smallest normal number. Subnormals are evenly spaced:",
)
def no_subnormals(weights, updates, format):
    free = 2.0 ** (torch.frexp(weights.double()).exponent - 1 - format.mantissa_bits).double()
    lost, half = lost_as_it_is(weights, updates, format)
    tiny = (weights.abs() < format.smallest_normal) & (weights != 0)
    odd = weights.double() / gaps(weights, updates, format)[1] % 2 == 1
    return prediction(torch.where(tiny, updates.double().abs() <= free / 2, lost), half, updates, odd)


@wrong("lost_updates", "runs", "it returned (steps, lost), where lost goes first")
def in_the_wrong_order(weights, updates, format):
    lost, half = lost_as_it_is(weights, updates, format)
    return prediction(lost, half, updates)[::-1]


@wrong("lost_updates", "lost", "lost is inverted: you mark the updates that are kept")
def kept_for_lost(weights, updates, format):
    lost, half = lost_as_it_is(weights, updates, format)
    return ~lost, prediction(lost, half, updates)[1]


@wrong(
    "lost_updates", "lost", "The sign of the update is ignored: a negative one is less than any spacing. It is |update|"
)
def without_the_updates_sign(weights, updates, format):
    lost, half = lost_as_it_is(weights, updates, format)
    return prediction(lost | (updates < 0), half, updates)


@wrong(
    "lost_updates",
    "lost",
    "The sign of the weight is ignored: numbers are closer on the side of zero, and from a negative",
)
def closer_downwards(weights, updates, format):
    return by(lambda w, u, f: gaps(w.abs(), u, f)[0] / 2)(weights, updates, format)


def tried(weights, sums, format):
    """Does the weight stay? Rounded in float64."""
    exponents = torch.where(sums == 0, format.lowest_exponent, torch.frexp(sums).exponent - 1)
    spacing = 2.0 ** (exponents.clamp(min=format.lowest_exponent) - format.mantissa_bits).double()
    return (sums / spacing).round() * spacing == weights


@wrong("lost_updates", "steps", "you say 60 steps. After these")
def tried_sixty_times(weights, updates, format):
    weights, updates = weights.double(), updates.double()
    steps = torch.ones_like(weights)
    for _ in range(59):
        steps += tried(weights, weights + steps * updates, format)
    return tried(weights, weights + updates, format), steps


@wrong("lost_updates", "runs", "compute how many, do not count up: it does not end: rank 0, at")
def tried_until_it_changes(weights, updates, format):
    weights, updates = weights.double(), updates.double()
    steps = torch.ones_like(weights)
    while (stay := tried(weights, weights + steps * updates, format)).any():
        steps += stay
    return tried(weights, weights + updates, format), steps


@wrong("lost_updates", "steps", "you say 2 steps. After these")
def two_steps_for_all(weights, updates, format):
    lost, _ = lost_as_it_is(weights, updates, format)
    return lost, 1 + lost.long()


@wrong("lost_updates", "steps", "One fewer is enough")
def one_step_more(weights, updates, format):
    lost, half = lost_as_it_is(weights, updates, format)
    return lost, torch.where(lost, prediction(lost, half, updates)[1] + 1, 1)


@wrong("lost_updates", "steps", "An update that is kept needs 1 step, one that is lost more")
def one_step_for_all(weights, updates, format):
    return lost_as_it_is(weights, updates, format)[0], torch.ones_like(weights)


# scaled_step


def gradients(optimizer):
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def squares_of(tensors):
    return sum((each.square().sum() for each in tensors), torch.zeros(1))


def added(squares):
    dist.all_reduce(squares)
    return squares


def unscaled(optimizer, scale):
    for gradient in gradients(optimizer):
        gradient /= scale


def factor_of(squares, max_norm, scale):
    return min(1.0, max_norm / squares.sqrt().item())


def halved(scale, good_steps):
    return scale / 2, 0


def scaler(
    optimizer, scale, good_steps, window, max_norm, share=added, unscale=unscaled, factor=factor_of, back=halved
):
    """A right one."""
    unscale(optimizer, scale)
    squares = share(squares_of(gradients(optimizer)))
    if not squares.isfinite().all():
        return back(scale, good_steps)
    for gradient in gradients(optimizer):
        gradient *= factor(squares, max_norm, scale)
    optimizer.step()
    return (scale * 2, 0) if good_steps + 1 == window else (scale, good_steps + 1)


@wrong("scaled_step", "runs", "in step 1 rank 0 returned nothing (None), where a pair is right: scale, good_steps")
def steps_not(optimizer, scale, good_steps, window, max_norm):
    pass


@wrong("scaled_step", "steps", "nothing is inf or NaN on any rank, and rank 0 makes no step")
def returns_what_it_was_given(optimizer, scale, good_steps, window, max_norm):
    return scale, good_steps


@wrong("scaled_step", "runs", "returned (None, 0), where two numbers are right")
def a_pair_of_no_numbers(optimizer, scale, good_steps, window, max_norm):
    return None, 0


@wrong("scaled_step", "own work", "you call tinydist.precision")
def librarys_scaler(optimizer, scale, good_steps, window, max_norm):
    scaler = precision.LossScaler(precision.Dynamic(scale, growth_interval=window, good_steps=good_steps))
    scaler.scale(torch.ones(()))
    scaler.step(optimizer)
    scaler.update()
    return scaler.rule.scale, scaler.rule.good_steps


@wrong("scaled_step", "own work", "you call torch's GradScaler, where this is solved")
def torchs_scaler(optimizer, scale, good_steps, window, max_norm):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=window)
    scaler.scale(torch.ones(()))
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale(), good_steps + 1


@wrong("scaled_step", "steps", "Each rank decides and clips for itself here, by its own gradients.")
def each_for_itself(*arguments):
    return scaler(*arguments, share=lambda squares: squares)


@wrong("scaled_step", "steps", "Nothing is clipped: a gradient longer than max_norm is made as short as that.")
def the_notebooks_scaler(*arguments):
    return scaler(*arguments, factor=lambda *_: 1.0)


@wrong("scaled_step", "steps", "this is the norm of the rank that has the largest.")
def the_largest_alone(*arguments):
    def share(squares):
        dist.all_reduce(squares, dist.ReduceOp.MAX)
        return squares

    return scaler(*arguments, share=share)


@wrong("scaled_step", "steps", "The squares must be added up, not averaged: the ranks have parts of one gradient.")
def averages(*arguments):
    return scaler(*arguments, share=lambda squares: added(squares) / dist.get_world_size())


@wrong("scaled_step", "steps", "What is added up are squares: the norm is the root of their sum.")
def without_the_root(*arguments):
    return scaler(*arguments, factor=lambda squares, max_norm, _: min(1.0, max_norm / squares.item()))


@wrong("scaled_step", "steps", "or max_norm / norm is used where it is above 1, too.")
def lengthens(*arguments):
    return scaler(*arguments, factor=lambda squares, max_norm, _: max_norm / squares.sqrt().item())


@wrong("scaled_step", "steps", "Gradients are clipped before they are unscaled: the norm is `scale` times too large")
def clips_first(optimizer, scale, good_steps, window, max_norm):
    def clipped_and_unscaled(squares, max_norm, scale):
        return min(1.0, max_norm / squares.sqrt().item()) / scale

    arguments = optimizer, scale, good_steps, window, max_norm
    return scaler(*arguments, unscale=lambda *_: None, factor=clipped_and_unscaled)


@wrong("scaled_step", "steps", "A step with inf or NaN is made: now weights are inf or NaN, and will stay so.")
def never_skips(optimizer, scale, good_steps, window, max_norm):
    unscaled(optimizer, scale)
    squares = added(squares_of(gradients(optimizer)))
    for gradient in gradients(optimizer):
        gradient *= factor_of(squares, max_norm, scale)
    optimizer.step()
    return (scale * 2, 0) if good_steps + 1 == window else (scale, good_steps + 1)


@wrong(
    "scaled_step",
    "steps",
    "Gradients are made zero, and the step is made: momentum moves the weights also with gradients",
)
def steps_with_zeros(optimizer, *others):
    def zeroed(scale, good_steps):
        for gradient in gradients(optimizer):
            gradient.zero_()
        optimizer.step()
        return scale / 2, 0

    return scaler(optimizer, *others, back=zeroed)


@wrong("scaled_step", "runs", "All ranks must make the call that shares the number, whatever they have found: one that")
def leaves_before_the_others(optimizer, scale, good_steps, window, max_norm):
    unscaled(optimizer, scale)
    if not squares_of(gradients(optimizer)).isfinite():
        return scale / 2, 0
    return scaler(optimizer, scale, good_steps, window, max_norm, unscale=lambda *_: None)


@wrong("scaled_step", "steps", "Rank 0 decides here, and clips all by its own norm.")
def rank_0_decides(*arguments):
    def share(squares):
        dist.broadcast(squares, src=0)
        return squares

    return scaler(*arguments, share=share)


@wrong("scaled_step", "steps", "Either they were not unscaled before they were clipped")
def forgets_to_unscale(*arguments):
    return scaler(*arguments, unscale=lambda *_: None)


@wrong("scaled_step", "steps", "The gradients are divided by the scale twice.")
def unscales_twice(*arguments):
    return scaler(*arguments, unscale=lambda o, s: (unscaled(o, s), unscaled(o, s)))


@wrong("scaled_step", "scale", "On overflow the scale is halved.")
def never_backs_off(*arguments):
    return scaler(*arguments, back=lambda scale, good_steps: (scale, 0))


@wrong("scaled_step", "scale", "The count begins anew at each overflow.")
def counts_through_overflows(*arguments):
    return scaler(*arguments, back=lambda scale, good_steps: (scale / 2, good_steps))


@wrong(
    "scaled_step", "scale", "The step that makes the window full counts: the scale is doubled in it, not in the next."
)
def grows_one_step_late(optimizer, scale, good_steps, window, max_norm):
    return scaler(optimizer, scale, good_steps, window + 1, max_norm)


@wrong("scaled_step", "scale", "The scale goes on growing: the count begins anew when it has grown.")
def goes_on_growing(optimizer, scale, good_steps, window, max_norm):
    next_scale, count = scaler(optimizer, scale, min(good_steps, window - 1), window, max_norm)
    return next_scale, window if next_scale > scale else count


@wrong("scaled_step", "bytes", "into one all_reduce, where one number of at most 8 is enough")
def sends_a_flag_as_well(*arguments):
    def share(squares):
        overflow = (~squares.isfinite()).float()
        both = added(torch.cat([squares, overflow, overflow]))
        return torch.where(both[1] > 0, torch.inf, both[0])

    return scaler(*arguments, share=share)


@wrong("scaled_step", "bytes", "rank 0 makes 48 calls of torch.distributed in 24 steps, where one a step is enough")
def decides_and_then_clips(*arguments):
    def share(squares):
        overflow = (~squares.isfinite()).float()
        dist.all_reduce(overflow, dist.ReduceOp.MAX)
        return torch.where(overflow > 0, torch.inf, added(squares))

    return scaler(*arguments, share=share)


@wrong("scaled_step", "runs", "The scale goes first: scale, good_steps")
def swaps_the_pair(*arguments):
    return scaler(*arguments)[::-1]


@wrong("scaled_step", "runs", "the next one is half of it, the same, or twice as much")
def backs_off_by_ten(*arguments):
    return scaler(*arguments, back=lambda scale, good_steps: (scale / 10, 0))


@wrong("scaled_step", "steps", "The steps have the precision of 16 bits: unscale in fp32.")
def unscales_in_fp16(*arguments):
    def unscale(optimizer, scale):
        for gradient in gradients(optimizer):
            gradient.copy_(gradient.half() / scale)

    return scaler(*arguments, unscale=unscale)


@wrong(
    "scaled_step",
    "good steps",
    "Good steps are counted since the scale last changed: when it has grown, too, the count begins anew.",
)
def counts_on_after_growth(optimizer, scale, good_steps, window, max_norm):
    following, count = scaler(optimizer, scale, good_steps % window, window, max_norm)
    return following, good_steps + 1 if count or following > scale else 0


@wrong("scaled_step", "good steps", "good steps are counted since the scale last changed")
def counts_and_adds(optimizer, scale, good_steps, window, max_norm):
    following, count = scaler(optimizer, scale, good_steps % window, window, max_norm)
    return following, count + 7 * window


IN_COMMON = {}  # the squares of each rank: ranks are threads here, and so see them


def by_memory(meet):
    """A sum that passes through memory; ``meet()`` only makes the ranks wait for one another."""

    def share(squares):
        rank = dist.get_rank()
        IN_COMMON[rank] = squares
        meet()
        total = sum(IN_COMMON[other] for other in range(dist.get_world_size()))
        dist.barrier()
        return total

    return share


@wrong(
    "scaled_step",
    "steps",
    "what it did in step 3, when it had an inf or NaN, and ranks 0, 2 change the weights",
)
def waits_twice(*arguments):
    return scaler(*arguments, share=by_memory(dist.barrier))


def by_memory_of_the_step(meet):
    """The same, with one call in a step: two halves of the memory take turns."""
    calls = {}

    def share(squares):
        rank, p = dist.get_rank(), dist.get_world_size()
        turn = calls[rank] = 1 - calls.get(rank, 0)
        IN_COMMON[turn, rank] = squares
        meet()
        return sum(IN_COMMON[turn, other] for other in range(p))

    return share


MEETS_AT_A_BARRIER = by_memory_of_the_step(lambda: dist.barrier())
MEETS_WITH_A_CONSTANT = by_memory_of_the_step(lambda: dist.all_reduce(torch.zeros(1)))


@wrong(
    "scaled_step",
    "steps",
    "what it did in step 3, when it had an inf or NaN, and ranks 0, 2 change the weights",
)
def says_nothing(*arguments):
    return scaler(*arguments, share=MEETS_AT_A_BARRIER)


@wrong(
    "scaled_step",
    "steps",
    "what it did in step 3, when it had an inf or NaN, and ranks 0, 2 change the weights",
)
def says_always_the_same(*arguments):
    return scaler(*arguments, share=MEETS_WITH_A_CONSTANT)


class Equal(float):
    def __eq__(self, other):
        return True

    __hash__ = float.__hash__


@wrong("scaled_step", "runs", "where two numbers are right: scale, good_steps")
def numbers_that_equal_all(optimizer, scale, good_steps, window, max_norm):
    return Equal(scale), Equal(good_steps)


# mended_fp16_step


def mended(
    model,
    masters,
    microbatches,
    scale,
    lr,
    max_norm,
    again=1,
    share=True,
    ranks=None,
    own_overflow=False,
    clip="unscaled",
    to_fp32=True,
    update="masters",
    zero=True,
    skip=True,
    returned=None,
    each=False,
    average=None,
):
    """A right one, and with other arguments a wrong one."""
    weights, k = list(model.parameters()), len(microbatches)
    if zero:
        model.zero_grad()
    for x, y in microbatches:
        (scale * F.mse_loss(model(x).float(), y) / (k if share else 1)).backward()
        if each:
            averaged([p.grad.float() for p in weights], 1)
    if to_fp32:
        found = [
            p.grad.float() / (scale if clip in ("unscaled", "always") else 1) / (k if again > 1 else 1) for p in weights
        ]
    else:
        found = [(p.grad / scale).float() for p in weights]
    overflow = not_finite(found)
    (average or averaged)(found, ranks or dist.get_world_size())
    if not own_overflow:
        overflow = not_finite(found)
    norm = torch.cat([g.flatten() for g in found]).norm()
    for g in found:
        if clip:
            factor = max_norm / (g.norm() if clip == "each" else norm)
            g *= factor if clip == "always" else min(1, factor)
        if clip == "scaled":
            g /= scale
        if clip in (None, "each"):
            g /= scale
    if not (overflow and skip):
        change(weights, masters, found, lr, update)
    return (not overflow) if returned is None else returned


def not_finite(tensors):
    return not all(each.isfinite().all() for each in tensors)


def averaged(tensors, ranks):
    for each in tensors:
        dist.all_reduce(each)
        each /= ranks


def change(weights, masters, gradients, lr, update):
    for p, master, g in zip(weights, masters, gradients):
        if update == "weights":
            p.data -= lr * g
        elif update == "masters from weights":
            master.copy_(p.data.float() - lr * g)
            p.data.copy_(master)
        else:
            master -= lr * g
            if update == "masters":
                p.data.copy_(master)


def mended_but(rejected_by, told, **options):
    def answer(model, masters, microbatches, scale, lr, max_norm):
        return mended(model, masters, microbatches, scale, lr, max_norm, **options)

    answer.__name__ = ", ".join(f"{name}={value}" for name, value in options.items())
    return wrong("mended_fp16_step", rejected_by, told)(answer)


@wrong("mended_fp16_step", "runs", "rank 0 returned nothing (None), where True or False is right")
def mends_nothing(model, masters, microbatches, scale, lr, max_norm):
    pass


@wrong("mended_fp16_step", "mean", "the weights do not move, and nothing overflows")
def makes_no_step(model, masters, microbatches, scale, lr, max_norm):
    return not any((y > 1e4).any() for _, y in microbatches)


@wrong("mended_fp16_step", "own work", "you call tinydist.precision")
def librarys_masters(model, masters, microbatches, scale, lr, max_norm):
    optimizer = precision.MasterWeights(model.parameters(), torch.optim.SGD, lr=lr)
    optimizer.step()
    return not any((y > 1e4).any() for _, y in microbatches)


@wrong("mended_fp16_step", "overflow", "in step 2 nothing overflows, and ranks 0-2 returned False")
def remembers_an_overflow(model, masters, microbatches, scale, lr, max_norm):
    made = mended(model, masters, microbatches, scale, lr, max_norm)
    model.overflowed = getattr(model, "overflowed", False) or not made
    return not model.overflowed


OF_ALL = {}  # the gradients of each rank, by the step


@wrong("mended_fp16_step", "heard", "the results do not follow what is sent")
def averages_in_memory(model, masters, microbatches, scale, lr, max_norm):
    """The gradients travel, and what is used is read from a global variable."""
    model.step = getattr(model, "step", 0) + 1

    def average(tensors, ranks):
        OF_ALL[dist.get_rank(), model.step] = [each.clone() for each in tensors]
        averaged(tensors, ranks)
        for place, each in enumerate(tensors):
            each.copy_(sum(OF_ALL[rank, model.step][place] for rank in range(ranks)) / ranks)

    return mended(model, masters, microbatches, scale, lr, max_norm, average=average)


@wrong(
    "mended_fp16_step",
    "overflow",
    "inf and NaN are lost on the way: compute with the fp16 model, and leave them in its gradients.",
)
def computes_in_fp32(model, masters, microbatches, scale, lr, max_norm):
    wide = copy.deepcopy(model).float()
    made = mended(wide, masters, [(x.float(), y) for x, y in microbatches], scale, lr, max_norm)
    model.load_state_dict(wide.state_dict())
    return made


mended_but("mean", "A gradient that is shorter than max_norm is made longer: leave it", clip="always")
mended_but("mean", "is divided by the number of microbatches, and so are the gradients, once more", again=2)
mended_but("mean", "This is the sum of the losses of the microbatches, and the mean is asked for", share=False)
mended_but("mean", "The gradients of the ranks are added up, and not divided by their number", ranks=1)
mended_but("overflow", "without overflow are finite, and the average with the others is not", own_overflow=True)
mended_but("overflow", "no rank steps, and ranks 0-1 returned True", returned=True)
mended_but("overflow", "The step is skipped if any gradient is inf or NaN", skip=False)
mended_but("overflow", "What is left of the gradients of the step before? The next ones must begin from", zero=False)
mended_but("clipping", "unscale first, then clip to max_norm", clip="scaled")
mended_but("clipping", "The gradient is longer than max_norm, and is not clipped to it", clip=None)
mended_but("clipping", "clipped by its own norm: it counts the norm of all numbers together", clip="each")
mended_but("unscaling", "The gradients are about 2^-26, too small for fp16", to_fp32=False)
mended_but("masters", "after 24 steps the masters are what they were", update="weights")
mended_but("masters", "Update the masters from themselves, in fp32", update="masters from weights")
mended_but("masters", "copy the masters back after each step", update="masters alone")
mended_but("bytes", "Add up the microbatches first, and average once", each=True)


# training_bytes

SIZE = {"fp32": 4, "bf16": 2, "fp16": 2, "8 bit": 1}
MOMENTS = {"SGD": 0, "momentum": 1, "Adam": 2}


def budget(recipe, n, weights=None, held=None, master=None, moments=None, size=None, scales=None):
    """A right one, with terms of its own."""
    count = MOMENTS[recipe.optimizer] if moments is None else moments
    size = SIZE[recipe.moments] if size is None else size
    if scales is None:
        scales = count * 4 / 256 if recipe.moments == "8 bit" else 0
    return {
        "parameters": n * (SIZE[recipe.weights] if weights is None else weights),
        "gradients": n * (sum(SIZE[each] for each in recipe.gradients) if held is None else held),
        "optimizer states": n * (4 * (recipe.master if master is None else master) + count * size + scales),
    }


@wrong("training_bytes", "runs", "it returned nothing (None), where a dict is right: purpose -> bytes")
def counts_nothing(recipe, n):
    pass


@wrong("training_bytes", "runs", "it has the purposes 'parameters', where")
def a_part_of_it(recipe, n):
    return {"parameters": 2 * n}


@wrong("training_bytes", "runs", "for parameters it has an object of type str, where a number of bytes is right")
def words_for_numbers(recipe, n):
    return dict.fromkeys(("parameters", "gradients", "optimizer states"), "16 n")


@wrong("training_bytes", "own work", "you call the solution of training_bytes, where this is solved")
def the_solution_itself(recipe, n):
    return find("training_bytes").reference(recipe, n)


@wrong("training_bytes", "parameters", "These are the bytes of one parameter: there are n of them")
def of_one_parameter(recipe, n):
    return budget(recipe, 1)


@wrong("training_bytes", "parameters", "The model computes with recipe.weights: fp32 takes 4 bytes, a 16-bit format 2.")
def always_16_bits(recipe, n):
    return budget(recipe, n, weights=2)


@wrong("training_bytes", "parameters", "fp32 copies are counted here, and they are the optimizer's")
def copies_among_the_parameters(recipe, n):
    return budget(recipe, n, weights=SIZE[recipe.weights] + 4 * recipe.master, master=False)


@wrong(
    "training_bytes", "gradients", "Gradients are held in each of the formats of recipe.gradients, at the same time."
)
def gradients_once(recipe, n):
    return budget(recipe, n, held=SIZE[recipe.gradients[-1]])


@wrong(
    "training_bytes",
    "gradients",
    "Gradients are held in the formats of recipe.gradients, whatever the format of the weights.",
)
def gradients_like_weights(recipe, n):
    return budget(recipe, n, held=SIZE[recipe.weights])


@wrong(
    "training_bytes",
    "states",
    "The fp32 copies of the weights are missing. recipe.master says whether the optimizer keeps",
)
def without_copies(recipe, n):
    return budget(recipe, n, master=False)


@wrong(
    "training_bytes",
    "states",
    "There are no copies of the weights here. recipe.master says whether the optimizer keeps them.",
)
def copies_always(recipe, n):
    return budget(recipe, n, master=True)


@wrong("training_bytes", "states", "SGD remembers nothing, momentum one number per parameter, and Adam two.")
def hard_coded_for_adam(recipe, n):
    return budget(recipe, n, moments=2)


@wrong("training_bytes", "states", "Adam remembers two numbers per parameter, one for each of its moments.")
def one_moment(recipe, n):
    return budget(recipe, n, moments=min(1, MOMENTS[recipe.optimizer]))


@wrong("training_bytes", "states", "The moments are held in recipe.moments, which need not be fp32.")
def moments_in_fp32(recipe, n):
    return budget(recipe, n, size=4, scales=0)


@wrong("training_bytes", "states", "Numbers of 8 bits have a scale, 4 bytes for each 256 of them.")
def without_scales(recipe, n):
    return budget(recipe, n, scales=0)


@wrong("training_bytes", "states", "Each number has a scale of its own here, and there is one scale for 256 of them.")
def a_scale_for_each_number(recipe, n):
    return budget(recipe, n, scales=MOMENTS[recipe.optimizer] * 4 * (recipe.moments == "8 bit"))


@wrong("training_bytes", "parameters", "8 times too many: these are bits, and a byte has 8")
def bits_for_bytes(recipe, n):
    return {purpose: 8 * nbytes for purpose, nbytes in budget(recipe, n).items()}


@wrong("training_bytes", "runs", "tuple indices must be integers")
def reads_it_like_a_dict(recipe, n):
    return budget(recipe, n, weights=SIZE[recipe["weights"]])


@wrong("training_bytes", "states", "Each of the moments has scales of its own.")
def scales_of_one_moment(recipe, n):
    return budget(recipe, n, scales=4 / 256 if recipe.moments == "8 bit" else 0)


@wrong("training_bytes", "parameters", "have 1.1453 bytes per parameter, which are too few: recipe.weights is")
def ends_at_two_billion(recipe, n):
    """As an int32 would."""
    return budget(recipe, min(n, 2**31))


@wrong("scaled_step", "runs", "A rank without gradients has to say so, too")
def an_idle_rank_stays_away(optimizer, scale, good_steps, *others):
    if not gradients(optimizer):
        return scale, good_steps + 1
    return scaler(optimizer, scale, good_steps, *others)


@wrong("scaled_step", "runs", "The ranks are asked once for each parameter")
def asks_for_each_parameter(optimizer, *others):
    def share(squares):
        for _ in gradients(optimizer)[1:]:
            dist.all_reduce(torch.zeros(1))
        return added(squares)

    return scaler(optimizer, *others, share=share)


@wrong(
    "mended_fp16_step",
    "runs",
    "gradients that fit into fp16 on each rank, and their sum does not: in step 1 nothing overflows",
)
def averages_in_fp16(model, masters, microbatches, scale, lr, max_norm):
    weights = list(model.parameters())
    model.zero_grad()
    for x, y in microbatches:
        loss = F.mse_loss(model(x).float(), y) / len(microbatches)
        (scale * loss).backward()
    for p in weights:
        dist.all_reduce(p.grad)
    gradients = [p.grad.float() / dist.get_world_size() for p in weights]
    overflow = not all(g.isfinite().all() for g in gradients)
    for g in gradients:
        g /= scale
    norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in gradients]))
    for g in gradients:
        g *= min(1, max_norm / norm)
    if not overflow:
        for p, master, g in zip(weights, masters, gradients):
            master -= lr * g
            p.data.copy_(master)
    return not overflow
