"""Published figures of sparse attention: what can be counted is counted again."""

from tinydist.hardware.published_sparse import FLEX, LONGER, NSA


def test_what_a_query_reads():
    for tokens, keys in NSA.keys.items():
        assert keys == tokens // NSA.stride + NSA.selected * NSA.size + NSA.window


def test_no_kernel_is_faster_than_the_keys_that_it_leaves_out():
    most = 65536 / NSA.keys[65536]
    assert NSA.backward < NSA.forward < most
    assert all(least < most for least, most in FLEX.values())
    assert all(each.faster < each.times for each in LONGER.values())
