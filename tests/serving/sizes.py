"""Block sizes from 1 to 32: a few every time, all of them where time does not matter."""

import pytest


def block_sizes(*few):
    def size(tokens):
        return tokens if tokens in few else pytest.param(tokens, marks=pytest.mark.exhaustive)

    return pytest.mark.parametrize("block_size", [size(tokens) for tokens in range(1, 33)])
