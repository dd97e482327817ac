"""Groups: the order of heads, and what does not fit together."""

import pytest
import torch

from tinydist.attention.groups import check_shapes, fold, unfold


def test_query_head_h_is_in_group_h_over_the_size_of_a_group():
    heads = torch.arange(6.0).view(1, 6, 1, 1).expand(1, 6, 2, 1)
    assert fold(heads, 2)[0, :, :, 0].tolist() == [[0, 0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5]]


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_fold_is_a_view_and_unfold_its_inverse(groups):
    x = torch.randn(2, 6, 5, 4)
    folded = fold(x, groups)
    assert folded.data_ptr() == x.data_ptr()
    assert torch.equal(unfold(folded, 6), x)


Q, K = (2, 6, 5, 8), (2, 3, 7, 8)


@pytest.mark.parametrize(
    "q, k, v, error",
    [
        (
            Q[1:],
            K,
            K,
            "name: q, k and v must be [batch, heads, tokens, head_dim], got q [6, 5, 8], k [2, 3, 7, 8], v",
        ),
        (Q, (2, 4, 7, 8), (2, 4, 7, 8), "name: num_heads (6) must be divisible by num_kv_heads (4)"),
        (Q, (2, 0, 7, 8), (2, 0, 7, 8), "name: num_heads (6) must be divisible by num_kv_heads (0)"),
        ((2, 2, 5, 8), K, K, "name: num_heads (2) must be divisible by num_kv_heads (3)"),
        (Q, K, (2, 3, 6, 8), "name: k and v must have the same batch, heads and tokens, got q"),
        (
            Q,
            (1, 3, 7, 8),
            (1, 3, 7, 8),
            "name: q and k must have the same batch size: got q [2, 6, 5, 8], k [1, 3, 7, 8]",
        ),
        (Q, (2, 3, 7, 4), K, "name: q and k must have the same head_dim >= 1: got q [2, 6, 5, 8], k [2, 3, 7, 4]"),
        ((2, 6, 5, 0), (2, 3, 7, 0), K, "name: q and k must have the same head_dim >= 1: got q [2, 6, 5, 0]"),
    ],
)
def test_shapes_that_do_not_fit(q, k, v, error):
    with pytest.raises(ValueError) as raised:
        check_shapes("name", torch.empty(q), torch.empty(k), torch.empty(v))
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize("dtypes", [(torch.float16, torch.float32), (torch.int64, torch.int64)])
def test_dtypes_that_do_not_fit(dtypes):
    q, k = torch.empty(Q, dtype=dtypes[0]), torch.empty(K, dtype=dtypes[1])
    with pytest.raises(TypeError, match=r"^name: q, k and v must have the same floating dtype, got torch"):
        check_shapes("name", q, k, k)


def test_devices_that_do_not_fit():
    with pytest.raises(ValueError, match=r"^name: q, k and v must be on the same device, got cpu, meta, meta"):
        check_shapes("name", torch.empty(Q), torch.empty(K, device="meta"), torch.empty(K, device="meta"))
