"""Published measurements of context parallelism: what must hold within each table."""

from pytest import approx

from tinydist.hardware.published_context_parallel import (
    BALANCED_ON_TPUS,
    BOTH_ON_TPUS,
    GATHERS,
    GPUS,
    LLAMA_3,
    ON_TPUS,
    RING_BLOCKS,
    RINGS,
    STYLES,
    WITH_AND_WITHOUT,
)


def test_no_layout_is_faster_than_the_gpus_together():
    for rates in RINGS.values():
        assert rates.contiguous < rates.striped < rates.zigzag < rates.alone / GPUS
        assert rates.contiguous / (rates.alone / GPUS) == approx(8 / 15, abs=0.02)  # the last rank's 7.5 blocks, of 4
    for rates in GATHERS.values():
        assert rates.contiguous < rates.gathered < rates.zigzag < rates.alone / GPUS


def test_the_least_block_is_the_ratio_of_the_rates():
    for block in RING_BLOCKS.values():
        assert block.flops / block.bandwidth == approx(block.tokens, rel=0.045)  # printed with two digits


def test_llama_3():
    for run in LLAMA_3:
        assert run.tp * run.cp * run.pp * run.dp == run.gpus
        assert run.flops / 989e12 == approx(run.mfu, abs=0.01)
    tokens = {run.dp * run.tokens * sequences for run, sequences in zip(LLAMA_3, (32, 16, 16))}
    assert len(tokens) == 1, "16M tokens in each batch"


def test_ulysses_was_faster_than_contiguous_parts_and_a_ring():
    assert all(each.gathered < each.ulysses for each in STYLES.values())
    assert ON_TPUS["ring"] < ON_TPUS["Ulysses"] < ON_TPUS["all-gather"]


def test_a_ring_comes_closer_with_more_tokens_on_a_chip():
    for table in (BOTH_ON_TPUS, BALANCED_ON_TPUS):
        ring, gathered = table[64, 1], table["all-gather"]
        behind = [ring[tokens] / gathered[tokens] for tokens in sorted(ring)]
        assert behind == sorted(behind, reverse=True) and behind[-1] > 1
    assert all(seconds < BOTH_ON_TPUS[how][n] for how, row in BALANCED_ON_TPUS.items() for n, seconds in row.items())
    assert all(ring * ulysses == 64 for ring, ulysses in (how for how in BOTH_ON_TPUS if how != "all-gather"))


def test_with_context_parallelism_each_row_is_faster():
    assert all(row.with_cp > row.without for row in WITH_AND_WITHOUT.values())
    assert all(row.gpus * 1024 == tokens for tokens, row in WITH_AND_WITHOUT.items())
