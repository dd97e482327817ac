"""Other right answers to the exercise of 15b_profile_and_forecast: they must pass."""

import torch
import torch.distributed as dist
from lab.registered import others

RIGHT_ANSWERS, right = others()


@right("faster_step")
def by_autograd(weights, batches):
    """Backward in one go, by torch; a hook on each weight reduces its gradient in the last micro-batch."""
    ranks, works = dist.get_world_size(), []
    own = [weight.clone().requires_grad_() for weight in weights]
    loss = torch.zeros(())
    for number, x in enumerate(batches):
        if number == len(batches) - 1:
            for weight in own:
                weight.register_post_accumulate_grad_hook(
                    lambda each: works.append(dist.all_reduce(each.grad, async_op=True))
                )
        for weight in own:
            x = torch.relu(x @ weight)
        part = x.square().mean() / len(batches)
        loss += part.detach()
        if number == len(batches) - 1:
            works.append(dist.all_reduce(loss, async_op=True))
        part.backward()
    for work in works:
        work.wait()
    return loss / ranks, [weight.grad / ranks for weight in own]
