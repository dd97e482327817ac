"""Tiles and waves: what the best product gets, and why others get less."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from tinydist.hardware import TILES, Tiles, find_cluster, find_device
from tinydist.hardware.costs import kernel_time

A100 = find_device("A100 80GB").at(0.87, 0.87, TILES["A100"])


def rate(device, *product):
    """FLOP/s of a product that no memory holds up."""
    flops = 2 * math.prod(product)
    return flops / kernel_time(device, flops, 0, "bfloat16", product)


@pytest.mark.parametrize("name", TILES)
def test_the_best_product_gets_what_was_measured(name):
    device = find_device({"A100": "A100 80GB"}.get(name, name)).at(0.8, 0.9, TILES[name])
    assert rate(device, 1, *TILES[name].best) == pytest.approx(device.peak_of("bfloat16"), rel=1e-12)


def test_a_full_wave_more_or_a_tile_more_takes_as_long():
    waves = TILES["A100"].waves
    assert waves(1, 256 * 108, 128) == waves(1, 256, 128) == 1
    assert waves(1, 256 * 108 + 1, 128) == waves(109, 10, 10) == 2


def test_tiles_lie_either_way():
    waves = TILES["A100"].waves
    assert waves(1, 128 * 108, 256) == waves(1, 256, 128 * 108) == 1


def test_thin_and_odd_products_are_slower_and_those_with_a_short_inside():
    rates = [rate(A100, 1, 8192, 8192, inner) for inner in (64, 512, 4096, 32768)]
    assert all(a < b for a, b in pairwise(rates))
    assert rate(A100, 1, 8192, 768, 4096) < 0.95 * rate(A100, 1, 8192, 8192, 4096)
    assert rate(A100, 1, 100, 100, 4096) < 0.2 * rate(A100, 1, 8192, 8192, 4096)  # split-K keeps 64 of 108 busy


def test_the_size_of_tiles_is_the_best_for_the_shape():
    """8192 x 768 in tiles of 256 x 128: 2 waves of 108. In 128 x 64 it wastes less: 8 of 1/4 as much, 7.1 filled."""
    tiles, large = TILES["A100"], 2 * 256 * 128 * 108 * 4096 * 2
    assert min(flops for flops, _ in tiles.choices((1, 8192, 768, 4096))) <= large * (1 + 20 * (1 / 256 + 1 / 128))
    thin = min(flops for flops, _ in tiles.choices((1, 8192, 64, 4096)))
    assert thin < min(flops for flops, _ in tiles.choices((1, 8192, 256, 4096)))


def test_an_inner_dimension_is_split_among_idle_multiprocessors():
    """A tile of 64 x 64 on 8 multiprocessors: of 8 parts, each has 1/8 of K."""
    alone, among = Tiles((1, 1, 1), 1), Tiles((1, 1, 1), 8)
    one, eight = (tiles.seconds((1, 64, 64, 8192), 1e12, 1e30) for tiles in (alone, among))
    assert one == pytest.approx(eight)  # at one rate of all multiprocessors
    assert among.seconds((1, 64, 64, 8192), 1e12, 1e9) > eight  # the sums are added up in memory


def test_a_sum_in_float32_is_read_and_written():
    tiles = TILES["A100"]
    assert tiles.seconds((1, 8192, 8192, 512), 3e14, 1.7e12, 8) > tiles.seconds((1, 8192, 8192, 512), 3e14, 1.7e12)


def test_without_tiles_all_products_get_the_same_and_so_does_what_is_none():
    plain = replace(A100, tiles=None)
    assert rate(plain, 1, 100, 100, 10) == pytest.approx(plain.peak_of("bfloat16"))
    assert kernel_time(A100, 1e9, 0, "bfloat16") == 1e9 / A100.peak_of("bfloat16")


def test_tiles_stay_when_a_cluster_gets_less_of_something_else():
    cluster = find_cluster("A100 node").at(tiles=TILES["A100"]).at(memory=0.5)
    assert cluster.device.tiles == TILES["A100"]


def test_a_rate_at_which_nothing_could_be_written_is_refused():
    with pytest.raises(ValueError, match=r"measured must be FLOP/s at which the best matmul takes longer than .* got"):
        TILES["A100"].rate_within(1e18, 1e12)


@pytest.mark.parametrize("best", [(1024, 10240), (1024, 10240, 0), "shape"])
def test_the_best_product_has_three_sizes(best):
    with pytest.raises(ValueError, match="best must be three integers >= 1, got"):
        Tiles(best, 108)
