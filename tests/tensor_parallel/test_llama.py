"""A Llama of Hugging Face's, by the names of its modules: it trains as if it were whole."""

import pytest
import torch

import tinydist
from tinydist.tensor_parallel import cross_entropy, gathered, shard

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
VOCABULARY, STEPS = 131, 5


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=2,
            attn_implementation="eager",
        )
    )


def train(model, loss):
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for step in range(STEPS):
        tokens = torch.randint(VOCABULARY, (2, 17), generator=torch.Generator().manual_seed(step))
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        losses.append(loss(logits.flatten(0, 1), tokens[:, 1:].flatten()))
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(losses).detach()


def sharded(sequence):
    model = shard(llama(), sequence_parallel=sequence)
    losses = train(model, lambda logits, targets: cross_entropy(logits, targets, VOCABULARY))
    return losses, list(gathered(model)) == [name for name, _ in llama().named_parameters()]


@pytest.mark.parametrize(
    "ranks, sequence, backend",
    [
        (1, None, "simulated"),
        (2, None, "simulated"),
        (4, "save", "simulated"),
        (8, None, "simulated"),
        (2, None, "gloo"),
    ],
)
def test_it_trains_to_the_losses_of_one_process(ranks, sequence, backend):
    expected = train(llama(), torch.nn.functional.cross_entropy)
    for losses, named_alike in tinydist.launch(sharded, ranks, sequence, backend=backend).results:
        torch.testing.assert_close(losses, expected, rtol=0, atol=1e-5)
        assert named_alike
