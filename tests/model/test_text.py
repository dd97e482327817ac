from pydoc_data.topics import topics

import torch

from tinydist.model import batch, load_text


def test_the_text_is_the_one_that_python_carries():
    text = bytes(load_text().tolist()).decode()
    assert len(text) > 300_000
    assert all(topics[name] in text for name in ("assert", "while", "lambda"))


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
