"""A decoder as a GGUF file that llama.cpp loads and runs: its architecture "llama".

    ours                                            in the file
    embedding, norm, head                           token_embd, output_norm, output
    blocks.N.attention_norm, mlp_norm               blk.N.attn_norm, ffn_norm
    blocks.N.attention.query, key, value, out       blk.N.attn_q, attn_k, attn_v, attn_output
    blocks.N.gate, up, down                         blk.N.ffn_gate, ffn_up, ffn_down

Sizes, the base of RoPE and the epsilon of the norms are keys. Rows of queries and keys keep their order, as llama.cpp
rotates neighbors, too. (Hugging Face pairs i with i + d/2; for its weights llama.cpp's converter reorders the rows.)
With a vocabulary of 256 a token is a byte, and text goes in and out; otherwise only token ids do.

Source: ggml-org/llama.cpp at 0c1e570, src/models/llama.cpp (tensors), src/llama-model.cpp (keys, order of RoPE),
src/llama-vocab.cpp (tokenizers), conversion/llama.py (permute).
"""

import torch

from ..attention.decoder import Decoder
from ..attention.rotary import Yarn
from ..rules import count, validate
from .blocks import Blocks
from .gguf_file import save_gguf

IN_A_BLOCK = {
    "attention_norm": "attn_norm",
    "attention.query": "attn_q",
    "attention.key": "attn_k",
    "attention.value": "attn_v",
    "attention.out": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


@validate(decoder=Decoder, context=count)
def save_llama(path, decoder, context=2048):
    """Layers in blocks (``in_blocks``) keep theirs, all else must be fp32. ``context``: tokens of a training sequence.

    Raises ``ValueError`` for what llama.cpp's "llama" does not compute: latent attention, windows, YaRN."""
    config = decoder.config
    unlike = {"latent": config.latent, "windows": any(config.windows), "rotary": isinstance(config.rotary, Yarn)}
    for name, is_unlike in unlike.items():
        if is_unlike:
            raise ValueError(
                f'save_llama: "llama" has full attention and plain RoPE, got {name}={getattr(config, name)}'
            )
    tensors = tensors_of(decoder)
    for name, tensor in tensors.items():
        if not isinstance(tensor, Blocks) and tensor.dtype != torch.float32:
            raise ValueError(f"save_llama: {name} must be in blocks or fp32, got {tensor.dtype}")
    save_gguf(path, tensors, keys_of(decoder, context) | tokenizer_of(config.vocab_size))


def tensors_of(decoder):
    layers = {"token_embd": decoder.embedding, "output_norm": decoder.norm, "output": decoder.head}
    for n, block in enumerate(decoder.blocks):
        layers |= {f"blk.{n}.{theirs}": block.get_submodule(ours) for ours, theirs in IN_A_BLOCK.items()}
    return {f"{name}.weight": layer.weight for name, layer in layers.items()}


def keys_of(decoder, context):
    config, epsilon = decoder.config, decoder.norm.eps
    return {
        "general.architecture": "llama",
        "general.quantization_version": 2,  # of the blocks: ggml.h
        "llama.context_length": context,
        "llama.embedding_length": config.dim,
        "llama.block_count": config.layers,
        "llama.feed_forward_length": decoder.blocks[0].gate.out_features,
        "llama.attention.head_count": config.heads,
        "llama.attention.head_count_kv": config.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": torch.finfo(torch.float32).eps if epsilon is None else epsilon,
        "llama.rope.freq_base": float(config.rotary),
        "llama.vocab_size": config.vocab_size,
    }


def tokenizer_of(vocab_size):
    """RWKV's takes the longest token that fits: with bytes alone, one byte."""
    if vocab_size != 256:
        return {"tokenizer.ggml.model": "none"}
    return {"tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": [f"\\x{byte:02x}" for byte in range(256)]}
