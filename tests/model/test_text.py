from hashlib import sha256

import torch

from tinydist.model import batch, load_text


def test_the_text_is_the_same_with_every_python():
    """Losses in notebooks are of these bytes."""
    text = bytes(load_text().tolist())
    assert 'The "assert" statement' in text.decode() and len(text) == 466_273
    assert sha256(text).hexdigest().startswith("71f2ff5d99bdc1f9")


def test_targets_are_the_bytes_that_follow():
    tokens, targets = batch(step=3, size=5, context=16)
    assert tokens.shape == targets.shape == (5, 16)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    row = bytes(tokens[0].tolist() + targets[0, -1:].tolist())
    assert row in bytes(load_text().tolist())


def test_a_step_has_the_same_batch_always_and_its_own():
    assert torch.equal(batch(7, 4)[0], batch(7, 4)[0])
    assert not torch.equal(batch(7, 4)[0], batch(8, 4)[0])
    assert not torch.equal(batch(7, 4)[0], batch(7, 4, seed=1)[0])


def test_drawing_a_batch_leaves_the_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    batch(0, 4)
    assert torch.rand(1) == expected
