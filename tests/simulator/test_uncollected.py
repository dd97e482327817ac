"""No garbage is looked for, and then again, if it was before; also after an error."""

import gc

import pytest

from tinydist.simulator.uncollected import uncollected


@pytest.mark.parametrize("before", [True, False])
def test_as_it_was_before(before):
    enabled = gc.isenabled()
    (gc.enable if before else gc.disable)()
    try:
        with pytest.raises(ValueError), uncollected():
            assert not gc.isenabled()
            raise ValueError
        assert gc.isenabled() == before
    finally:
        (gc.enable if enabled else gc.disable)()
