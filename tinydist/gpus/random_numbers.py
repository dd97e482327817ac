"""A GPU's random numbers: a seed and an offset that grows, as Philox has them, so 16 bytes of state (torch.cuda has the
same). The numbers themselves are drawn by the host's generator, seeded by both: others than a GPU would draw.

Source: Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3 (counters); DTensor moves the offset of each
rank, so that shards are pieces of one random tensor (torch/distributed/tensor/_random.py).
"""

import hashlib
from contextlib import contextmanager

import torch
from torch._subclasses import FakeTensor

STEP = 4  # an offset is a multiple of it
BELOW_2_64 = 2**64


def check_generator(generator, device):
    """The operator's own, or none."""
    if generator is not None and generator.device.type != device.type:
        raise RuntimeError(f"Expected a '{device.type}' device type for generator but found '{generator.device.type}'")


class PhiloxState:
    def __init__(self, seed):
        self.seed, self.offset = seed % BELOW_2_64, 0

    @property
    def state(self):
        packed = self.seed.to_bytes(8, "little") + self.offset.to_bytes(8, "little")
        return torch.tensor(list(packed), dtype=torch.uint8)

    @state.setter
    def state(self, state):
        if isinstance(state, FakeTensor):  # in a forecast, where nothing is drawn
            return
        packed = bytes(state.tolist())
        if len(packed) != 16:
            raise RuntimeError(f"RNG state is wrong size: a GPU's has 16 bytes, got {len(packed)}")
        self.seed, self.offset = int.from_bytes(packed[:8], "little"), int.from_bytes(packed[8:], "little")

    @contextmanager
    def drawn_by_the_host(self):
        """Operators draw from here. A call counts as one step: how many numbers it draws is not known before."""
        host = torch.default_generator.get_state()
        both = self.seed.to_bytes(8, "little") + self.offset.to_bytes(8, "little")
        torch.default_generator.manual_seed(int.from_bytes(hashlib.blake2b(both, digest_size=8).digest(), "little"))
        self.offset += STEP
        try:
            yield
        finally:
            torch.default_generator.set_state(host)
