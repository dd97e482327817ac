"""torch.save and torch.load: a tensor returns to where it was, or to where map_location says."""

import io

import pytest
import torch
from gpus.on_gpus import on_gpus, where
from torch import nn

PLACES = [  # (map_location, where the tensor of GPU 0 is, and that of the host)
    (None, "cuda:0 cpu"),
    ("cpu", "cpu cpu"),
    ("cuda", "cuda:0 cuda:0"),
    ("cuda:1", "cuda:1 cuda:1"),
    (torch.device("cuda", 1), "cuda:1 cuda:1"),
    ({"cuda:0": "cuda:1"}, "cuda:1 cpu"),
    (lambda storage, location: storage, "cpu cpu"),
    (lambda storage, location: storage.cuda(1), "cuda:1 cuda:1"),
]


@pytest.mark.parametrize(("map_location", "expected"), PLACES)
@pytest.mark.parametrize("weights_only", [True, False])
def test_map_location(map_location, expected, weights_only):
    def program():
        file, x = io.BytesIO(), torch.arange(4.0, device="cuda")
        torch.save({"x": x, "view": x[2:], "h": torch.ones(2)}, file)
        file.seek(0)
        found = torch.load(file, map_location=map_location, weights_only=weights_only)
        found["x"][2:] = 7
        return where(found["x"], found["h"]), where(found["view"]) == where(found["x"]), found["view"].tolist()

    assert on_gpus(program) == (expected, True, [7, 7])


def test_a_file_of_a_gpu_is_read_on_the_host_with_map_location(tmp_path):
    on_gpus(lambda: torch.save({"x": torch.ones(2, device="cuda")}, tmp_path / "x.pt"))
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device"):
        torch.load(tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", map_location="cpu")["x"].tolist() == [1, 1]


def test_what_is_read_counts():
    def program():
        file = io.BytesIO()
        torch.save(torch.ones(1000, device="cuda"), file)
        file.seek(0)
        before = torch.cuda.memory_allocated()
        x = torch.load(file)
        return torch.cuda.memory_allocated() - before, len(x)

    assert on_gpus(program) == (4000, 1000)


def test_states_of_the_host_go_into_a_model_on_the_gpu():
    def program():
        file, model = io.BytesIO(), nn.Linear(2, 2).cuda()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other = nn.Linear(2, 2).cuda()
        other.load_state_dict(torch.load(file, map_location="cpu"))
        return where(other.weight), torch.equal(other.weight, model.weight)

    assert on_gpus(program) == ("cuda:0", True)
