"""Megatron-core, tensor parallelism: its own GPTModel, of which each rank has a part of every matrix.

    torchrun --nproc-per-node 2 examples/train_megatron.py

Groups, layers cut by columns and rows, parts of the vocabulary and the loss over them run without a GPU. What has a
buffer does not ("AssertionError: Torch not compiled with CUDA enabled"): the core of attention, in whose place torch's
is put, as the spec of a layer allows; Megatron's DistributedDataParallel, and so its distributed optimizer.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig
from same_step import CONFIG, RANKS, RATE, ROWS, Report, make_model, make_text, show
from torch.utils.data import DataLoader

NAMES = {  # of ours -> of Megatron's
    "embedding": "embedding.word_embeddings",
    "position": "embedding.position_embeddings",
    "attention_norm": "input_layernorm",
    "qkv": "self_attention.linear_qkv",
    "out": "self_attention.linear_proj",
    "mlp_norm": "pre_mlp_layernorm",
    "up": "mlp.linear_fc1",
    "down": "mlp.linear_fc2",
    "norm": "decoder.final_layernorm",
}


class CoreAttention(torch.nn.Module):
    def __init__(self, **_):
        super().__init__()

    def forward(self, query, key, value, *_, **__):  # [T, B, H, D/H] each, H of this rank
        q, k, v = (each.permute(1, 2, 0, 3) for each in (query, key, value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [B, H, T, D/H]
        return mixed.permute(2, 0, 1, 3).flatten(2)  # [T, B, D/tp]


def megatron_model():
    shape = {"num_layers": CONFIG.layers, "hidden_size": CONFIG.dim, "num_attention_heads": CONFIG.heads}
    config = TransformerConfig(
        **shape,
        tensor_model_parallel_size=RANKS,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
    )
    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = CoreAttention
    return GPTModel(config, spec, CONFIG.vocab_size, CONFIG.context, share_embeddings_and_output_weights=True)


def named_as_megatrons(model):
    for name, weight in model.named_parameters():
        *path, layer, kind = name.split(".")
        if layer == "qkv":  # ours are [q, k, v] of [heads], Megatron's [heads] of [q, k, v]
            weight = weight.unflatten(0, (3, CONFIG.heads, -1)).transpose(0, 1).flatten(0, 2)
        block = f"decoder.layers.{path[1]}." if path else ""
        yield f"{block}{NAMES[layer]}.{kind}", weight


def main():
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=RANKS)
    text = make_text()
    report = Report()
    model = megatron_model()
    ours = dict(named_as_megatrons(make_model()))
    for name, parameter in model.named_parameters():
        dim = parameter.partition_dim if getattr(parameter, "tensor_model_parallel", False) else None
        whole = ours.pop(name).data
        parameter.data.copy_(whole if dim is None else whole.chunk(RANKS, dim)[dist.get_rank()])
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)

    for tokens, targets in DataLoader(text, batch_size=ROWS):  # all ranks of a tensor group see all rows
        optimizer.zero_grad()
        positions = torch.arange(CONFIG.context).expand_as(tokens)
        loss = model(tokens, positions, attention_mask=None, labels=targets).mean()  # of each token's
        loss.backward()
        optimizer.step()
        report.step(loss.item())

    found = report.end()
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    show(main())
