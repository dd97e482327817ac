"""SyncBatchNorm over ranks is BatchNorm over the whole batch."""

import pytest
import torch
import torch.distributed as dist
from gpus.on_gpus import on_gpus
from torch import nn

CHANNELS = 3


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("sizes", [(2, 2), (1, 3)])
def test_it_is_batch_norm_of_the_whole_batch(sizes, affine):
    def program():
        rank = dist.get_rank()
        torch.cuda.set_device(rank)
        torch.manual_seed(0)
        whole = nn.BatchNorm2d(CHANNELS, affine=affine).double()
        synced = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(CHANNELS, affine=affine)).double().cuda()
        x = torch.randn(sum(sizes), CHANNELS, 5, 5, dtype=torch.float64, requires_grad=True)
        mine = x.detach().split(sizes)[rank].cuda().requires_grad_()
        theirs, ours = whole(x), synced(mine)
        (theirs**3).sum().backward()
        (ours**3).sum().backward()
        pairs = [(ours, theirs.split(sizes)[rank]), (mine.grad, x.grad.split(sizes)[rank])]
        pairs += [(synced.running_mean, whole.running_mean), (synced.running_var, whole.running_var)]
        for parameter, expected in zip(synced.parameters(), whole.parameters(), strict=True):
            dist.all_reduce(parameter.grad)
            pairs.append((parameter.grad, expected.grad))
        for found, expected in pairs:
            torch.testing.assert_close(found.detach().cpu(), expected.detach())
        return len(pairs)

    assert on_gpus(program, 2) == (6 if affine else 4)
