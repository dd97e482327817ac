"""What the exercises of this chapter share: their order, their notebook's beginning, and what may not be used."""

import torch

ORDER = ["choose_formats", "rows_for_llama_cpp"]

INTRODUCTION = """\
# Exercises: GGUF and the KV cache

[Notebook 21b](../notebooks/21b_gguf_and_kv_cache.ipynb) goes before these. You choose formats for weights and for the \
KV cache, for a memory, and put weights of Hugging Face into the order that llama.cpp's RoPE wants. Two exercises, \
about 35 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The first property that does not \
hold is explained.

**Hint.** `hint(choose_formats)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check choose_formats` checks, `hint \
choose_formats` gives a hint, and `reset choose_formats` puts the stub back.

Of `tinydist.quantization` you may call nothing."""

IMPORTS = """\
import torch"""

SOLVED = {"tinydist.quantization": "tinydist.quantization"}


def numbers(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
