"""Legal asynchronous programs: communication that is issued goes on while its rank does something else.

Each program runs on simulated ranks, first come first served and in other legal orders, and on real processes: with
the same values everywhere, and without a deadlock being seen where there is none.
"""

import pytest
import torch
import torch.distributed as dist
from sampled import later

import tinydist

SHUFFLED = [{"schedule": "shuffle", "seed": seed} for seed in range(5)]
SIMULATED = [{}, *SHUFFLED[:2], *map(later, SHUFFLED[2:])]
ANYWHERE = [*SIMULATED, {"backend": "gloo", "timeout": 60}]


def in_words(world):
    return world.get("backend", "simulated") + (f" shuffled {world['seed']}" if "seed" in world else "")


anywhere = pytest.mark.parametrize("world", ANYWHERE, ids=in_words)
simulated = pytest.mark.parametrize("world", SIMULATED, ids=in_words)  # what gloo does not offer


def number(value):
    return torch.tensor([float(value)])


@anywhere
def test_a_message_between_issuing_a_collective_and_waiting_for_it(world):
    def program():
        rank, total, heard = dist.get_rank(), number(dist.get_rank() + 1), number(0)
        if rank == 0:
            work = dist.all_reduce(total, async_op=True)
            dist.send(number(7), 1)
            work.wait()
        else:
            dist.recv(heard, 0)  # before it joins the collective that rank 0 has issued
            dist.all_reduce(total)
        return total.item(), heard.item()

    assert tinydist.launch(program, 2, **world).results == [(3, 0), (3, 7)]


@anywhere
def test_a_message_in_the_world_between_collectives_of_two_groups(world):
    def program():
        rank = dist.get_rank()
        pair, rest = dist.new_group([0, 1]), dist.new_group([1, 2])
        first, second, heard = number(rank + 1), number(10 * (rank + 1)), number(0)
        works = []
        if rank in (0, 1):
            works.append(dist.all_reduce(first, group=pair, async_op=True))
        if rank in (1, 2):
            works.append(dist.all_reduce(second, group=rest, async_op=True))
        send = dist.isend(number(rank), (rank + 1) % 3)
        dist.recv(heard, (rank - 1) % 3)
        for work in [send, *works]:
            work.wait()
        return first.item(), second.item(), heard.item()

    assert tinydist.launch(program, 3, **world).results == [(3, 10, 2), (3, 50, 0), (3, 50, 1)]


@anywhere
def test_waits_in_another_order_than_issues(world):
    def program():
        rank = dist.get_rank()
        tensors = [number(rank + part) for part in range(4)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        order = [3, 1, 0, 2] if rank == 0 else [2, 0, 3, 1]
        for index in order:
            works[index].wait()
        return [tensor.item() for tensor in tensors]

    assert tinydist.launch(program, 2, **world).results == [[1, 3, 5, 7]] * 2


@anywhere
def test_groups_used_in_another_order_on_each_rank(world):
    """Order matters within a group, and only there."""

    def program():
        rank = dist.get_rank()
        groups = [dist.new_group([0, 1, 2]) for _ in range(3)]
        tensors = [number(10 * part + rank) for part in range(3)]
        works = [dist.all_reduce(tensors[part], group=groups[part], async_op=True) for part in rotated(rank)]
        for work in works:
            work.wait()
        return [tensor.item() for tensor in tensors]

    def rotated(rank):
        return [(rank + step) % 3 for step in range(3)]

    assert tinydist.launch(program, 3, **world).results == [[3, 33, 63]] * 3


@anywhere
def test_a_future_with_messages_before_its_value(world):
    def program():
        rank, total, heard = dist.get_rank(), number(dist.get_rank() + 1), number(0)
        if rank == 1:
            dist.recv(heard, 0)
        future = dist.all_reduce(total, async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        if rank == 0:
            dist.send(number(7), 1)
        return doubled.wait().item(), future.wait()[0].item(), heard.item()

    assert tinydist.launch(program, 2, **world).results == [(6, 3, 0), (6, 3, 7)]


@simulated
def test_callbacks_of_a_future_run_as_the_rank_that_added_them(world):
    def program():
        seen = []
        work = dist.all_reduce(number(1), async_op=True)
        work.get_future().add_done_callback(lambda done: seen.append(dist.get_rank()))
        work.wait()
        return seen

    assert tinydist.launch(program, 4, **world).results == [[0], [1], [2], [3]]


@anywhere
def test_polling_lets_the_others_go_on(world):
    def program():
        rank, total = dist.get_rank(), number(dist.get_rank() + 1)
        if rank == 1:
            dist.recv(number(0), 0)
        work = dist.all_reduce(total, async_op=True)
        if rank == 0:
            dist.send(number(0), 1)
        while not work.is_completed():
            pass
        work.wait()
        return total.item()

    assert tinydist.launch(program, 2, **world).results == [3, 3]


@simulated
def test_polling_for_a_message(world):
    def program():
        heard = number(0)
        if dist.get_rank() == 1:
            dist.barrier()
            dist.send(number(7), 0)
        else:
            work = dist.irecv(heard, 1)
            before = work.is_completed()
            dist.barrier()
            while not work.is_completed():
                pass
            return before, heard.item()

    assert tinydist.launch(program, 2, **world).results == [(False, 7), None]


@anywhere
def test_a_ring_of_messages_all_sent_before_any_is_received(world):
    def program():
        rank, world = dist.get_rank(), dist.get_world_size()
        held, total = number(rank), number(rank)
        for _ in range(world - 1):
            arriving = number(0)
            send = dist.isend(held, (rank + 1) % world)
            dist.irecv(arriving, (rank - 1) % world).wait()
            send.wait()
            held, total = arriving, total + arriving
        return total.item()

    assert tinydist.launch(program, 4, **world).results == [6] * 4


@anywhere
def test_a_batch_of_messages_in_both_directions(world):
    def program():
        rank, world = dist.get_rank(), dist.get_world_size()
        left, right = (rank - 1) % world, (rank + 1) % world
        from_left, from_right = number(0), number(0)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, number(rank), right),
                dist.P2POp(dist.isend, number(10 * rank), left),
                dist.P2POp(dist.irecv, from_right, right),
                dist.P2POp(dist.irecv, from_left, left),
            ]
        )
        for work in works:
            work.wait()
        return from_left.item(), from_right.item()

    assert tinydist.launch(program, 3, **world).results == [(2, 10), (0, 20), (1, 0)]


@anywhere
def test_messages_of_a_pair_keep_their_order_however_they_are_waited_for(world):
    def program():
        if dist.get_rank() == 0:
            works = [dist.isend(number(part), 1) for part in range(4)]
        else:
            heard = [number(-1) for _ in range(4)]
            works = [dist.irecv(tensor, 0) for tensor in heard]
        for work in reversed(works):
            work.wait()
        return [tensor.item() for tensor in heard] if dist.get_rank() else None

    assert tinydist.launch(program, 2, **world).results == [None, [0, 1, 2, 3]]


@anywhere
def test_tags_tell_messages_apart_in_any_order(world):
    def program():
        if dist.get_rank() == 0:
            works = [dist.isend(number(tag), 1, tag=tag) for tag in (1, 2, 3)]
            for work in works:
                work.wait()
            return None
        heard = []
        for tag in (3, 1, 2):
            heard.append(number(0))
            dist.recv(heard[-1], 0, tag=tag)
        return [tensor.item() for tensor in heard]

    assert tinydist.launch(program, 2, **world).results == [None, [3, 1, 2]]


@anywhere
def test_a_receive_from_any_rank_says_who_sent(world):
    def program():
        rank = dist.get_rank()
        if rank:
            dist.send(number(10 * rank), 0)
            return None
        heard = []
        for _ in range(3):
            tensor = number(0)
            source = dist.recv(tensor)
            heard.append((source, tensor.item()))
        return sorted(heard)

    assert tinydist.launch(program, 4, **world).results[0] == [(1, 10), (2, 20), (3, 30)]


@simulated
def test_a_receive_from_any_rank_posted_before_all_sends(world):
    def program():
        rank = dist.get_rank()
        heard = [number(0) for _ in range(3)]
        works = [dist.irecv(tensor) for tensor in heard] if rank == 0 else []
        dist.barrier()
        if rank:
            dist.send(number(rank), 0)
        for work in works:
            work.wait()
        return sorted((work.source_rank(), tensor.item()) for work, tensor in zip(works, heard))

    assert tinydist.launch(program, 4, **world).results[0] == [(1, 1), (2, 2), (3, 3)]


@anywhere
def test_every_collective_issued_before_any_is_waited_for(world):
    def program():
        rank, world = dist.get_rank(), dist.get_world_size()
        mine = torch.arange(3.0) + 10 * rank
        summed, at_root, spread = mine.clone(), mine.clone(), mine.clone()
        gathered, gathered_at_root = ([torch.zeros(3) for _ in range(world)] for _ in range(2))
        whole, piece, scattered, exchanged = torch.zeros(9), torch.zeros(1), torch.zeros(1), torch.zeros(3)
        root = rank == 1
        works = [
            dist.all_reduce(summed, async_op=True),
            dist.reduce(at_root, 1, async_op=True),
            dist.broadcast(spread, 1, async_op=True),
            dist.all_gather(gathered, mine, async_op=True),
            dist.gather(mine, gathered_at_root if root else None, 1, async_op=True),
            dist.scatter(scattered, list(mine.split(1)) if root else None, 1, async_op=True),
            dist.all_gather_single(whole, mine, async_op=True),
            dist.reduce_scatter_single(piece, mine, async_op=True),
            dist.all_to_all_single(exchanged, mine, async_op=True),
            dist.barrier(async_op=True),
        ]
        for work in reversed(works):
            work.wait()
        outputs = [summed, spread, torch.cat(gathered), scattered, whole, piece, exchanged]
        outputs_at_root = [at_root, *gathered_at_root] if root else []
        return [output.tolist() for output in outputs], [output.tolist() for output in outputs_at_root]

    rows = [[0, 1, 2], [10, 11, 12], [20, 21, 22]]
    everything = [value for row in rows for value in row]
    total = [30, 33, 36]
    for rank, (found, at_root) in enumerate(tinydist.launch(program, 3, **world).results):
        column = [rank, 10 + rank, 20 + rank]
        assert found == [total, [10, 11, 12], everything, [10 + rank], everything, [total[rank]], column]
        assert at_root == ([total, *rows] if rank == 1 else [])


@anywhere
def test_a_collective_is_waited_for_twice(world):
    def program():
        total = number(dist.get_rank() + 1)
        work = dist.all_reduce(total, async_op=True)
        work.wait()
        work.wait()
        return total.item(), work.is_completed()

    assert tinydist.launch(program, 2, **world).results == [(3, True)] * 2


@simulated
def test_a_message_is_waited_for_twice(world):
    """Where gloo would wait for one more message."""

    def program():
        heard = number(0)
        work = dist.irecv(heard, 0) if dist.get_rank() else dist.isend(number(7), 1)
        work.wait()
        work.wait()
        return heard.item(), work.is_completed()

    assert tinydist.launch(program, 2, **world).results == [(0, True), (7, True)]


@simulated
def test_works_that_nobody_waits_for(world):
    """Neither those that were done in the end, nor those that never could be, keep a rank from returning."""

    def program():
        rank, total, heard = dist.get_rank(), number(dist.get_rank() + 1), number(0)
        dist.all_reduce(total, async_op=True)
        if rank == 0:
            dist.isend(number(7), 1)
            dist.isend(number(8), 1, tag=5)  # has no receiver
        else:
            dist.irecv(heard, 0)
        dist.barrier()
        return total.item(), heard.item()

    with pytest.warns(RuntimeWarning, match="to rank 1, tag 5"):
        assert tinydist.launch(program, 2, **world).results == [(3, 0), (3, 7)]


@simulated
def test_a_rank_that_returns_early_leaves_its_part_behind(world):
    def program():
        rank, total, heard = dist.get_rank(), number(dist.get_rank() + 1), number(0)
        if rank == 0:
            dist.all_reduce(total, async_op=True)
            dist.isend(number(7), 1)
            return None
        dist.recv(heard, 0)
        dist.all_reduce(total)
        return total.item(), heard.item()

    assert tinydist.launch(program, 2, **world).results == [None, (3, 7)]


@anywhere
def test_coalesced_collectives_are_waited_for_as_one(world):
    def program():
        tensors = [number(dist.get_rank() + part) for part in range(3)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        return [tensor.item() for tensor in tensors]

    assert tinydist.launch(program, 2, **world).results == [[1, 3, 5]] * 2


@anywhere
def test_coalesced_collectives_without_waiting_are_done_at_the_end_of_the_block(world):
    def program():
        mine, wholes = number(dist.get_rank()), [torch.zeros(2) for _ in range(2)]
        with dist._coalescing_manager():
            for whole in wholes:
                dist.all_gather_single(whole, mine)
        return [whole.tolist() for whole in wholes]

    assert tinydist.launch(program, 2, **world).results == [[[0, 1], [0, 1]]] * 2


@anywhere
def test_what_is_sent_is_what_was_there_when_it_was_waited_for(world):
    """A buffer is free again after wait: filled anew for each message, each arrives as it was."""

    def program():
        buffer = number(0)
        heard = []
        for step in range(5):
            if dist.get_rank() == 0:
                buffer.fill_(step)
                dist.isend(buffer, 1).wait()
            else:
                dist.irecv(buffer, 0).wait()
                heard.append(buffer.item())
        return heard

    assert tinydist.launch(program, 2, **world).results == [[], [0, 1, 2, 3, 4]]


@anywhere
def test_a_collective_overlaps_with_backward(world):
    """Gradients are all-reduced from hooks, each issued as it arrives, all waited for after backward."""

    def program():
        torch.manual_seed(0)
        weights = [torch.randn(3, 3, requires_grad=True) for _ in range(3)]
        works = []

        def reduce(weight):
            works.append(dist.all_reduce(weight.grad, async_op=True))

        for weight in weights:
            weight.register_post_accumulate_grad_hook(reduce)
        hidden = torch.eye(3) * (dist.get_rank() + 1)
        for weight in weights:
            hidden = torch.tanh(hidden @ weight)
        hidden.sum().backward()
        for work in works:
            work.wait()
        return [weight.grad for weight in weights]

    torch.manual_seed(0)
    weights = [torch.randn(3, 3, requires_grad=True) for _ in range(3)]
    for scale in (1, 2):
        hidden = torch.eye(3) * scale
        for weight in weights:
            hidden = torch.tanh(hidden @ weight)
        hidden.sum().backward()
    for found in tinydist.launch(program, 2, **world).results:
        torch.testing.assert_close(found, [weight.grad for weight in weights], rtol=0, atol=1e-6)
