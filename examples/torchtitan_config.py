"""torchtitan, its configuration alone: it trains models of its own, and wants a GPU before it does.

    cd examples
    torchrun --nproc-per-node 2 -m torchtitan.train --module torchtitan_config --config same_steps

Seen with 0.3.0 and torch 2.13.0 for processors: the configuration is read, then trainer.py sets the device, which is
"cuda" where torch knows of none: "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'".
"""

from torchtitan.components.optimizer import default_adamw
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.models.llama3.config_registry import llama3_debugmodel


def same_steps():
    """As many steps, rows and tokens as in the other examples, in fp32, sharded over all ranks (ZeRO-3)."""
    config = llama3_debugmodel()  # a Llama of 6 layers of width 256, with a tokenizer and a text of their repository
    config.optimizer = default_adamw(lr=1e-3)
    config.training = TrainingConfig(local_batch_size=2, seq_len=64, steps=20, mixed_precision_param="float32")
    config.parallelism = ParallelismConfig(
        data_parallel_shard_degree=-1,  # all that is left; data_parallel_replicate_degree: copies of the shards (HSDP)
        fsdp_reshard_after_forward="always",  # "never": ZeRO-2
        tensor_parallel_degree=1,
        pipeline_parallel_degree=1,
    )
    return config
