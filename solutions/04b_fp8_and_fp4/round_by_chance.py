"""Stochastic rounding to e2m1, from chances that are given: up if the chance is below the part of the way."""

import torch

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import HERE, SOLVED


def case(about, x, seed=0):
    def given():
        generator = torch.Generator().manual_seed(seed)
        return x.clone(), torch.rand(x.shape, generator=generator)

    return alone(given, about)


def at_chance(about, x, chance):
    return alone(lambda: (x.clone(), torch.full_like(x, chance)), about)


def test_cases():
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    yield case("the numbers of e2m1 themselves", torch.cat([grid, -grid]))
    yield case("numbers from 0 to 6", torch.linspace(0, 6, 241))
    yield case("numbers from -6 to 0", torch.linspace(-6, 0, 241), seed=1)
    yield case("numbers beyond the largest", torch.linspace(-9, 9, 37), seed=2)
    yield at_chance("a chance of 0", torch.linspace(-6, 6, 97), 0.0)
    yield at_chance("a chance of nearly 1", torch.linspace(-6, 6, 97), 0.9999)
    yield case("a matrix", torch.linspace(-6, 6, 256).view(16, 16), seed=3)


UP = "chance < (magnitude - low) / (high - low)"


def beyond(trial, got, want, own, pick):
    x = trial.case.arguments(0)[0]
    if torch.equal(*(each[0][x.abs() <= 6] for each in (got, want))):
        return "Only what is beyond 6 is wrong. What is beyond 6 is cut to 6"
    return None


def one_number(trial, got, want, own, pick):
    """The first wrong number, with its part of the way and its chance."""
    x, chance = (each.flatten() for each in trial.case.arguments(0))
    place = int((got[0] != want[0]).flatten().nonzero()[0])
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    given, mine = x[place].abs().clamp(max=6), got[0].flatten()[place]
    told = f"{x[place]:.6g} becomes {mine:.6g}"
    if not (grid == mine.abs()).any():
        return f"{told}, and that is no number of e2m1"
    if (grid == given).any():
        return f"{told}, and {given:.6g} is a number of e2m1: it stays"
    if mine * x[place] < 0:
        return f"{told}: the sign changes"
    low, high = grid[grid < given].max(), grid[grid > given].min()
    part = (given - low) / (high - low)
    if mine.abs() not in (low, high):
        return f"{told}, and its neighbors are {low:g} and {high:g}"
    goes = "smaller than that, so it goes up" if chance[place] < part else "not smaller, so it stays below"
    way = f"In magnitude it is {part:.3g} of the way from {low:g} to {high:g}"
    return f"{told}. {way}, and its chance {chance[place]:.3g} is {goes}"


@exercise(
    title="Round to 4 bits by chance",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    targets=[
        Own("not the library's", HERE, SOLVED),
        Values(
            "one of the two neighbors in e2m1, of both signs: away from zero with the chance that makes the "
            "expectation exact, numbers of e2m1 unchanged, what is beyond 6 cut",
            explain=[beyond, one_number],
        ),
    ],
    mistakes=[
        mistake(
            "That is rounding to the nearest: the chance plays no part",
            UP,
            "(magnitude - low) / (high - low) > 0.5",
        ),
        mistake(
            "Up and down are as likely for all numbers. The nearer neighbor is to be the likelier one",
            UP,
            "(chance < 0.5) & (magnitude > low)",
        ),
        mistake(
            "The chances are the wrong way round: a number near the lower neighbor mostly becomes the upper one",
            UP,
            "(chance > (magnitude - low) / (high - low)) & (magnitude > low)",
        ),
        mistake(
            "1 - chance is as uniform as chance, but these are other draws: it goes up if the chance itself is below "
            "the part of the way",
            UP,
            "1 - chance < (magnitude - low) / (high - low)",
        ),
        mistake(
            "The part of the way is measured in the spacing here: e2m1's is 0.5, 1 or 2",
            UP,
            "chance < (magnitude - low) / 0.5",
        ),
        mistake(
            "With a chance of 0 numbers of e2m1 move. The chance has to be smaller than the part of the way: that is 0 "
            "there, and no chance is smaller",
            UP,
            "(chance <= (magnitude - low) / (high - low)) & (low < 6)",
        ),
        mistake("What is beyond 6 is cut to 6", ".clamp(max=6.0)", ""),
        mistake("The sign is lost", ".copysign(x)", ""),
    ],
    hints=[
        "Round the magnitude, and give it the sign at the end. For each magnitude you need its two neighbors.",
        "torch.bucketize(magnitude, grid, right=True) - 1 is the place of the lower neighbor in grid. The upper one is "
        "the next, or the last.",
        "A number that is a quarter of the way up should go up one time in four: if the chance, which is uniform from "
        "0 to 1, is below 1/4.",
    ],
    why="The expectation of the result is x. That is all that a gradient needs when thousands of steps add up, and it "
    "is what rounding to the nearest cannot give.",
)
def round_by_chance(x, chance):
    """Round the float32 tensor ``x`` stochastically to e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and their negatives.

    ``chance`` has the shape of x, with numbers from 0 up to 1, each as likely. A magnitude between two neighbors
    becomes the upper one if its chance is smaller than the part of the way from the lower to the upper. What is
    beyond 6 is cut to 6. Numbers of e2m1 stay.
    """
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    magnitude = x.abs().clamp(max=6.0)
    # ? Which numbers are below and above, and when does it go up?
    place = torch.bucketize(magnitude, grid, right=True) - 1
    low = grid[place]
    high = torch.where(low < 6, grid[(place + 1).clamp(max=7)], 8.0)
    up = chance < (magnitude - low) / (high - low)
    return torch.where(up, high, low).copysign(x)
