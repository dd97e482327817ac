"""What the exercises of this chapter share: their order, their notebook's beginning, and what they are judged by."""

from tinydist.lab.author import Own

ORDER = ["latent_attention", "divided_attention", "read_scores"]
INTRODUCTION = """\
# Exercises: latent attention

[Notebook 09b](../notebooks/09b_latent_attention.ipynb) goes before these. You attend over latents in the cheaper of \
two ways, find out what each GPU holds and reads when attention is divided, and read published scores. Three \
exercises, about 75 minutes.

**Check.** Fill in the function and run its cell, then the `check` cell below it. It is judged by one property after \
the other, and the first that does not hold is explained.

**Hint.** `hint(latent_attention)` gives one hint each time, from general to specific.

**Outside of the notebook**, in a terminal, in the folder of tinydist (save the notebook first): `.venv/bin/python -m\
 tinydist` shows how far you are, and takes you on; `.venv/bin/python -m tinydist check latent_attention` checks,\
 `hint latent_attention` gives a hint, and `reset latent_attention` puts the stub back.

B is the batch, H the query heads, T the queries, S the keys, c the numbers of a latent, d those of a head's key and e \
of its value, r those of the rotary key. In exercise 1, build from matmuls and a softmax: neither `tinydist.attention` \
nor torch's `scaled_dot_product_attention` and `nn.MultiheadAttention` may help."""

IMPORTS = """\
import math

import torch"""


SOLVED = ("tinydist.attention", "torch.nn.attention")
LENT = ["tinydist.attention.rotary"]
BUILT = Own("built from matmuls and a softmax", "here it is for you to build", SOLVED, torchs="attention", lent=LENT)
LOW = -1e12  # a score that a query has with the only key that it sees
