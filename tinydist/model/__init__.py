"""A plain single-device GPT, and a text dataset to train it on."""

from .gpt import GPT, GPTConfig
from .text import batch, load_text

__all__ = ["GPT", "GPTConfig", "batch", "load_text"]
