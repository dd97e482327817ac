"""Wrong answers to the exercises of 19_less_data_and_rates: each with the property that rejects it, and what it is
told."""

from itertools import pairwise

from lab.registered import collection, solved

from tinydist.training.one_cycle import one_cycle, one_cycle_momentum

WRONG_ANSWERS, wrong = collection()


@wrong("drop_tokens", "tokens computed", "the block was called on nothing")
def drops_everything(x, draws, kept, block):
    pass


@wrong("drop_tokens", "tokens computed", "the block was called on nothing")
def goes_round(x, draws, kept, block):
    return x


@wrong("drop_tokens", "tokens computed", "the block was called on [[1, 4, 2]]")
def computes_all_and_masks(x, draws, kept, block):
    keep = draws >= draws.topk(kept).values[:, -1:]
    return block(x).where(keep.unsqueeze(2), x)


@wrong("drop_tokens", "values", "the layer's output")
def keeps_the_first(x, draws, kept, block):
    y = x.clone()
    y[:, :kept] = block(x[:, :kept])
    return y


@wrong("read_rate", "values", "it returned nothing")
def reads_nothing(rates, losses):
    pass


@wrong("read_rate", "values", "the steepest")
def tenth_of_the_lowest(rates, losses):
    _, lowest = solved("read_rate")(rates, losses)
    return lowest / 10, lowest


@wrong("mended_one_cycle", "own work", "tinydist.training")
def librarys_cycle(peak, steps, rise, start, end):
    rate, momentum = one_cycle(peak, steps, rise, start, end), one_cycle_momentum(steps, rise=rise)
    return [rate(step) for step in range(steps)], [momentum(step) for step in range(steps)]


@wrong("mended_one_cycle", "values", "the momenta")
def momentum_that_stays(peak, steps, rise, start, end):
    rates, _ = solved("mended_one_cycle")(peak, steps, rise, start, end)
    return rates, [0.95] * steps


@wrong("winners", "values", "it returned nothing")
def says_nothing(methods, tokens, flops):
    pass


@wrong("winners", "values", "at equal")
def nobody(methods, tokens, flops):
    return None, None


@wrong("winners", "values", "at equal")
def last_points(methods, tokens, flops):
    means = {name: sum(curve[-1][2] for curve in curves) for name, curves in methods.items()}
    return (min(means, key=means.get),) * 2


@wrong("winners", "values", "ahead of the next best")
def ahead_of_the_baseline(methods, tokens, flops):
    def winner(axis, budget):
        taking = {
            name: [loss_at(curve, axis, budget) for curve in curves]
            for name, curves in methods.items()
            if all(curve[-1][axis] >= budget for curve in curves)
        }
        best, other = sorted(taking, key=lambda name: sum(taking[name]))[:2]
        if "baseline" in taking and best != "baseline":
            other = "baseline"
        gap = (sum(taking[other]) - sum(taking[best])) / len(taking[best])
        return best if gap > max(max(taking[name]) - min(taking[name]) for name in (best, other)) else None

    return winner(0, tokens), winner(1, flops)


def loss_at(curve, axis, budget):
    for left, right in pairwise(curve):
        if right[axis] >= budget:
            part = (budget - left[axis]) / (right[axis] - left[axis])
            return left[2] + part * (right[2] - left[2])
