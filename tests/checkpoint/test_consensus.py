"""One rank that fails takes the others with it; nobody waits for it."""

import pytest
import torch.distributed as dist

import tinydist
from tinydist.checkpoint.consensus import consensus, place_in


def refuses(*who):
    """What each rank is told when the ranks in ``who`` fail."""
    rank, _ = place_in()
    try:
        with consensus("move failed; nothing has moved", None, ValueError) as exchange:
            exchange.mine = rank
            if rank in who:
                raise KeyError("wheels") if rank == 2 else ValueError("it is Sunday")
        return exchange.all
    except ValueError as error:
        assert (error.__cause__ is not None) == (rank in who)
        return str(error)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_where_none_fails_each_hears_what_the_others_say(ranks):
    assert tinydist.launch(refuses, ranks).results == [list(range(ranks))] * ranks


def test_all_raise_with_the_reasons_and_their_ranks():
    said = tinydist.launch(refuses, 4, 0, 2, 3).results
    reasons = "On ranks 0, 3: it is Sunday; on rank 2: KeyError: 'wheels'"
    assert said == [f"move failed; nothing has moved. {reasons}"] * 4


def test_only_the_ranks_of_the_group_are_asked():
    def program():
        pair = dist.new_group([1, 2])
        if dist.get_rank() > 0:
            with pytest.raises(ValueError, match="On rank 1: of rank 2"), consensus("", pair, ValueError):
                if dist.get_rank() == 2:
                    raise ValueError("of rank 2")

    tinydist.launch(program, 3)


def test_a_process_without_a_process_group_is_alone():
    assert refuses() == [0]
    assert refuses(0) == "move failed; nothing has moved. On rank 0: it is Sunday"
