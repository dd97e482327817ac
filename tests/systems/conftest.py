"""What needs DeepSpeed, Megatron-core, transformers is skipped where they are not installed."""

from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def systems():
    if not all(map(find_spec, ("deepspeed", "megatron", "transformers"))):
        pytest.skip("the other systems are not installed: make systems")
