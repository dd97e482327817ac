"""A GPU's random numbers: apart from the host's, and kept, restored and reproduced as those of CUDA."""

import pytest
import torch
import torch.nn.functional as F
from gpus.on_gpus import on_gpus, refusal, where
from torch.utils.checkpoint import checkpoint


def drawn(**how):
    return torch.rand(3, **how).tolist()


def test_the_generator_of_the_gpu_is_apart_from_the_hosts():
    def program():
        torch.manual_seed(1)
        host = drawn(), drawn()
        torch.manual_seed(1)
        mixed = drawn(), drawn(device="cuda"), drawn()
        assert host == (mixed[0], mixed[2]) and mixed[1] not in host
        torch.manual_seed(1)
        return mixed[1] == drawn(device="cuda")

    assert on_gpus(program)


@pytest.mark.parametrize("seed", ["manual_seed", "manual_seed_all"])
def test_seeds(seed):
    def program():
        found = []
        for number in (5, 5, 6):
            getattr(torch.cuda, seed)(number)
            found.append((drawn(device="cuda"), drawn(device="cuda"), torch.cuda.initial_seed()))
        return found

    first, again, other = on_gpus(program)
    assert first == again != other and first[0] != first[1] and (first[2], other[2]) == (5, 6)


def test_states():
    def program():
        state, all_states = torch.cuda.get_rng_state(), torch.cuda.get_rng_state_all()
        first = drawn(device="cuda")
        torch.cuda.set_rng_state(state)
        assert first == drawn(device="cuda")
        torch.cuda.set_rng_state_all(all_states)
        assert first == drawn(device="cuda")
        torch.cuda.set_rng_state(state)
        with torch.random.fork_rng():
            drawn(device="cuda")
        assert first == drawn(device="cuda")
        return len(state), state.dtype, where(state), len(all_states), refusal(torch.cuda.set_rng_state, state[:4])

    size, dtype, place, gpus, words = on_gpus(program)
    assert (size, dtype, place, gpus) == (16, torch.uint8, "cpu", 8)
    assert words == "RNG state is wrong size: a GPU's has 16 bytes, got 4"


def test_each_gpu_has_its_own():
    def program():
        torch.manual_seed(0)
        one = drawn(device="cuda:1")
        drawn(device="cuda:0")
        torch.manual_seed(0)
        return drawn(device="cuda:0") is not None and one == drawn(device="cuda:1")

    assert on_gpus(program)


def test_generators():
    def program():
        generator, host = torch.Generator("cuda").manual_seed(3), torch.Generator()
        first = drawn(device="cuda", generator=generator)
        state = generator.manual_seed(3).get_state()
        assert first == drawn(device="cuda", generator=generator)
        generator.set_state(state)
        assert first == drawn(device="cuda", generator=generator)
        assert isinstance(torch.default_generator, torch.Generator) and isinstance(generator, torch.Generator)
        words = refusal(torch.rand, 3, device="cuda", generator=host), refusal(torch.rand, 3, generator=generator)
        return str(generator.device), str(host.device), words

    device, host, words = on_gpus(program)
    assert (device, host) == ("cuda:0", "cpu")
    assert words == (
        "Expected a 'cuda' device type for generator but found 'cpu'",
        "Expected a 'cpu' device type for generator but found 'cuda'",
    )


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_draw_the_same_once_more(reentrant):
    masks = []

    def dropped(x):
        y = F.dropout(x, 0.5)
        masks.append(y.tolist())
        return y * x

    def program():
        x = torch.ones(100, device="cuda", requires_grad=True)
        checkpoint(dropped, x, use_reentrant=reentrant).sum().backward()
        return where(x.grad)

    assert on_gpus(program) == "cuda:0"
    first, again = masks
    assert first == again


def test_ranks_draw_the_same_from_the_same_seed_and_others_from_others():
    def program(own):
        import torch.distributed as dist

        torch.manual_seed(dist.get_rank() if own else 0)
        found = [None] * 2
        dist.all_gather_object(found, drawn(device="cuda"))
        return found[0] == found[1]

    assert on_gpus(program, 2, False) and not on_gpus(program, 2, True)
