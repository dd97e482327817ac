"""09_attention_heads: heads that share keys and values, a cache that grows by a token, and its bytes.

own_work.py        what may not be called
results.py         what comes back
held.py            what they hold besides what they were given
attend.py          attention by its parts, each of which can be a wrong one
grouped.py         query heads that read the same keys and values, without a copy
cache.py           a cache for sequences of different lengths, and what it should hold after some steps
slots.py           what stands in a wrong one
mistaken_steps.py  steps of decoding with mistakes
decoding.py        a step of decoding
measured_cache.py  the bytes of a cache, from the ledger
cache_budget.py    the same, predicted
prompts.py         prompts of different lengths, a piece at a time
mended_cache.py    attention with a cache, for prompts and steps, and three bugs in it
"""

from . import grouped as grouped  # isort: skip
from . import decoding as decoding  # isort: skip
from . import cache_budget as cache_budget  # isort: skip
from . import mended_cache as mended_cache  # isort: skip
