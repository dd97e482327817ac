"""What the exercises of this chapter share: their order, their notebook's beginning, and what may not be used."""

import torch

ORDER = ["three_bit_blocks", "products_with_offset", "gptq_in_order"]

INTRODUCTION = """\
# Exercises: quantization

[Notebook 21](../notebooks/21_quantization.ipynb) goes before these. You write the bytes of a format that nobody \
has, multiply blocks that have an offset, and round a row by GPTQ with the columns in a better order. Three exercises, \
about 65 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. The first property that does not \
hold is explained.

**Hint.** `hint(three_bit_blocks)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m \
tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check three_bit_blocks` checks, `hint \
three_bit_blocks` gives a hint, and `reset three_bit_blocks` puts the stub back.

Of `tinydist.quantization` you may call nothing."""

IMPORTS = """\
import torch"""

SOLVED = {"tinydist.quantization": "tinydist.quantization", "gguf": "gguf"}
INSTEAD = "build it yourself"


def numbers(*shape, seed, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
