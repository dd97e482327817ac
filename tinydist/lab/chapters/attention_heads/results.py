"""What comes back: a tensor of the right shape and dtype."""

import torch

from ...errors import Wrong
from ...values import kind


def tensor_like(got, right, letters):
    """It is a tensor of the shape and dtype of ``right``; ``letters`` name its dims."""
    if not isinstance(got, torch.Tensor):
        raise Wrong(f"{kind(got)} came back, where a tensor is right")
    if got.shape != right.shape:
        raise Wrong(f"a result of shape {list(got.shape)} came back, where {letters} = {list(right.shape)} is right")
    if got.dtype != right.dtype:
        have, want = (str(each.dtype).removeprefix("torch.") for each in (got, right))
        raise Wrong(f"a result in {have} came back, where that of q, {want}, is right")


def whole_numbers(name, tensor):
    """A list of them, if ``tensor`` still is one of whole numbers."""
    if isinstance(tensor, torch.Tensor) and not tensor.dtype.is_floating_point:
        return tensor.tolist()
    now = f"a tensor of {tensor.dtype}" if isinstance(tensor, torch.Tensor) else kind(tensor)
    now = "a list" if isinstance(tensor, list) else now.replace("torch.", "")
    raise Wrong(f"{name} is {now} now; keep it a tensor of int64")
