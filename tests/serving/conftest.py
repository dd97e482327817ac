import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Tiles are so small that threads would only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
