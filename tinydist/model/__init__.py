"""One plain GPT, which knows nothing of parallelism, and real text to train it on."""

from .gpt import GPT, GPTConfig
from .text import batch, load_text

__all__ = ["GPT", "GPTConfig", "batch", "load_text"]
