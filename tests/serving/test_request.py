"""Requests: what may be asked, and when a sequence has ended."""

import pytest
import torch

from tinydist.serving import BlockPool, BlockTable, Request, RequestState, Sequence


def sequence(**options):
    return Sequence(RequestState(Request([7, 8, 9], **options)), 0, BlockTable(BlockPool(4)))


def written(tokens, **options):
    """Until it ends."""
    one = sequence(**options)
    for token in tokens:
        if one.finish_reason is None:
            one.append(token)
    return one.output_tokens, one.finish_reason


@pytest.mark.parametrize(
    "options, new, reason",
    [
        (dict(max_new_tokens=2), [1, 2], "length"),
        (dict(stop=[3]), [1, 2, 3], "stop"),
        (dict(stop=[[2, 3], 9]), [1, 2, 3], "stop"),
        (dict(stop=[[3, 2], [3, 4, 5]]), [1, 2, 3, 4, 5], "stop"),
        (dict(max_new_tokens=3, stop=[3]), [1, 2, 3], "stop"),
        (dict(max_new_tokens=9), [1, 2, 3, 4, 5], None),
    ],
)
def test_it_ends_by_its_length_or_by_what_it_says(options, new, reason):
    assert written([1, 2, 3, 4, 5], **options) == (new, reason)


def test_what_the_prompt_ends_with_stops_nothing():
    """8 and 9 are the prompt's."""
    assert written([1, 2], stop=[[9, 1], 8]) == ([1, 2], None)


def test_a_prompt_may_be_a_tensor():
    assert Request(torch.tensor([3, 4])).prompt == [3, 4]


def test_dice_are_those_of_the_seed_and_the_sample():
    def thrown(seed, sample):
        return Sequence(RequestState(Request([1], seed=seed)), sample, None).random.random()

    throws = [thrown(seed, sample) for seed in range(3) for sample in range(3)]
    assert len(set(throws)) == 9 and throws == [thrown(seed, sample) for seed in range(3) for sample in range(3)]


@pytest.mark.parametrize(
    "options, error",
    [
        (dict(prompt=[]), r"prompt must be a non-empty list of tokens, each an integer >= 0, got \[\]"),
        (
            dict(prompt=torch.ones(2)),
            r"prompt must be a non-empty list of tokens, .*, got a tensor \[2\] of torch.fl.*",
        ),
        (dict(max_new_tokens=0), r"max_new_tokens must be an integer >= 1, got 0"),
        (dict(temperature=-1), r"temperature must be a finite number >= 0, got -1"),
        (dict(top_p=0), r"top_p must be a number > 0 and <= 1, got 0"),
        (dict(top_k=0), r"top_k must be an integer >= 1 or None, got 0"),
        (dict(stop=[[]]), r"stop must be a list, each a token or a list of tokens, got \[\[\]\]"),
        (dict(n=0), r"n must be an integer from 1 to 1024, got 0"),
    ],
)
def test_errors(options, error):
    with pytest.raises(ValueError, match="^Request: " + error + "$"):
        Request(**dict(prompt=[1]) | options)
