"""What the caches of Transformers keep of a model with sliding windows: run it where transformers is installed.

    python benchmarks/window_caches.py

A Gemma 3 of six layers, five of them with a window of 8 tokens, reads a prompt of 20 tokens and one more. With
Transformers 5.23.0 on PyTorch 2.13:

    DynamicCache(config=config)     7, 7, 7, 7, 7, 21 tokens in its layers: window - 1, which the next query sees
    DynamicCache()                  21 in each: without the configuration it forgets nothing
"""

import torch
import transformers
from transformers import DynamicCache, Gemma3ForCausalLM, Gemma3TextConfig

SIZES = dict(hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=8)


@torch.no_grad()
def kept(model, cache):
    """Tokens in the cache of each layer."""
    tokens = torch.randint(64, (1, 21))
    for piece in tokens.split([20, 1], dim=1):
        model(piece, past_key_values=cache, use_cache=True)
    return [layer.keys.shape[2] for layer in cache.layers]


def main():
    config = Gemma3TextConfig(vocab_size=64, num_hidden_layers=6, sliding_window=8, **SIZES)
    model = Gemma3ForCausalLM(config).eval()
    print("transformers", transformers.__version__, "layers:", ", ".join(config.layer_types))
    print("DynamicCache(config=config):", kept(model, DynamicCache(config=config)))
    print("DynamicCache():", kept(model, DynamicCache()))


if __name__ == "__main__":
    main()
