"""What two pieces of a parameter have in common, against the same told number by number."""

import torch
from hypothesis import given
from hypothesis import strategies as some

from tinydist.checkpoint.shard_overlap import ParameterPart, ParameterPiece, boxes, copy_common, part_of
from tinydist.tensor_parallel.cuts import Cut


@some.composite
def pieces_of_one_parameter(draw):
    """(shape, two of: (piece, which numbers of the parameter it has)). Cut along one dim, or not at all."""
    dim, blocks = draw(some.sampled_from([(0, 1), (0, 3), (1, 1), (1, 2)]))
    shape = [draw(some.integers(1, 4)) for _ in range(draw(some.sampled_from([2, 3])))]
    shape[dim] = blocks * draw(some.integers(1, 5))
    numbers = torch.arange(torch.Size(shape).numel()).view(shape)

    def piece():
        parts = draw(some.integers(0, shape[dim] // blocks))
        own, parameter = numbers, torch.nn.Parameter(numbers.float())
        if parts:
            cut = Cut(dim, shape[dim], draw(some.integers(0, parts - 1)), parts, 1, blocks)
            own, parameter.cut = cut.own(numbers), cut
        whole, part = part_of(parameter, tuple(own.shape))
        assert list(whole) == shape
        start, end = sorted(draw(some.integers(0, own.numel())) for _ in range(2))
        return ParameterPiece(part, start, end - start), own.flatten()[start:end]

    return shape, piece(), piece()


@given(pieces_of_one_parameter())
def test_what_is_common_is_copied_and_nothing_else(drawn):
    shape, (mine, wanted), (theirs, source) = drawn
    vector = torch.full_like(wanted, -1)
    copy_common(shape, mine, vector, theirs, source)
    assert torch.equal(vector, torch.where(torch.isin(wanted, source), wanted, -1))


@given(pieces_of_one_parameter())
def test_a_piece_is_three_boxes_at_most(drawn):
    shape, (piece, _), _ = drawn
    lines = piece.part.lines if piece.part else 1
    found = list(boxes(piece, lines, torch.Size(shape).numel()))
    assert len(found) <= 3
    assert sum((box.bottom - box.top) * (box.right - box.left) for box in found) == piece.size


def test_the_picture():
    found = list(boxes(ParameterPiece(ParameterPart(4, 2, 3), 2, 8), 4, 28))
    assert [(box.top, box.bottom, box.left, box.right) for box in found] == [(0, 1, 4, 5), (1, 3, 2, 5), (3, 4, 2, 3)]
