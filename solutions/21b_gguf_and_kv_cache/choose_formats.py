"""Formats of weights and of the KV cache, for a memory and a quality."""

from tinydist.lab.author import Own, Values, alone, exercise, mistake

from .chapter import SOLVED

WEIGHTS = {"F16": (16, 0.0), "Q8_0": (8.5, 0.02), "Q6_K": (6.5625, 0.33), "Q5_0": (5.5, 2.09), "Q4_0": (4.5, 7.49)}
CACHES = {"F16": (16, 0.0), "Q8_0": (8.5, 0.1), "Q4_0": (4.5, 1.5)}


def case(about, weights, per_token, context, memory, bandwidth=50e9, caches=CACHES):
    return alone(lambda: (weights, per_token, context, memory, bandwidth, dict(WEIGHTS), dict(caches)), about)


def test_cases():
    yield case("1B, 4,096 tokens, 24 GB: all of it fits", 1e9, 65_536, 4096, 24e9)
    yield case("8B, 4,096 tokens, 16 GB", 8e9, 65_536, 4096, 16e9)
    yield case("8B, 4,096 tokens, 8 GB", 8e9, 65_536, 4096, 8e9)
    yield case("8B, 131,072 tokens, 16 GB: the cache counts", 8e9, 65_536, 131_072, 16e9)
    yield case("8B, 131,072 tokens, 24 GB", 8e9, 65_536, 131_072, 24e9, 1e12)
    yield case("just enough", 8e9, 65_536, 0, 8.5e9)
    yield case("too large", 70e9, 163_840, 1024, 16e9)
    like = {"F16": (16, 0.0), "Q8_0": (8.5, 0.0)}
    yield case("a cache that loses nothing", 1e9, 65_536, 8192, 16e9, caches=like)


@exercise(
    title="Formats for a memory",
    minutes=15,
    difficulty=1,
    test_cases=test_cases,
    targets=[
        Own("your own choice", "here it is arithmetic, and yours", SOLVED),
        Values(
            "formats and tokens/s, for 1, 8 and 70 billion weights, 0 to 131,072 tokens and 8 to 24 GB; None where no "
            "pair fits"
        ),
    ],
    mistakes=[
        mistake(
            "Weights and cache share the memory: it is their sum that must fit",
            "nbytes <= memory",
            "weights * wide / 8 <= memory",
        ),
        mistake(
            "Bits are eighths of bytes",
            "nbytes = (weights * wide + per_token * context * deep) / 8",
            "nbytes = weights * wide + per_token * context * deep",
        ),
        mistake("What is just as large as the memory fits", "nbytes <= memory", "nbytes < memory"),
        mistake(
            "Both lose quality: it is the sum of both losses that should be least",
            "worse + lost, nbytes",
            "worse, nbytes",
        ),
        mistake(
            "A token reads the cache as well",
            "bandwidth / nbytes",
            "bandwidth / (weights * weight_formats[weight][0] / 8)",
        ),
        mistake(
            "Of two that lose as much, take the one with fewer bytes",
            "worse + lost, nbytes",
            "worse + lost, -nbytes",
            "cache = best",
            "cache = best\n    nbytes = -nbytes",
        ),
        mistake("The cache has a row for each token of the context", "per_token * context * deep", "per_token * deep"),
    ],
    hints=[
        "There are few pairs: try them all, and keep those that fit.",
        "The key to compare by is (sum of both losses, bytes): `min` of tuples does the rest.",
    ],
    why="With 131,072 tokens and 16 GB, a cache in 16 bits is larger than the memory: it is the cache that has to be "
    "quantized. With 4,096 tokens it hardly counts. The losses of weights are those published for Llama 3 8B; those of "
    "caches are made up.",
)
def choose_formats(weights, per_token, context, memory, bandwidth, weight_formats, cache_formats):
    """Return (format of weights, format of the cache, tokens/s at most), or None where no pair fits.

    There are ``weights`` weights, and ``per_token`` numbers in the KV cache for each of ``context`` tokens. Both share
    ``memory`` bytes; exactly as much fits, too. Formats: name -> (bits per number, % of perplexity that is lost).
    Choose the pair with the least sum of losses; of those the one with fewer bytes. A token reads all weights and the
    whole cache, at ``bandwidth`` bytes/s.
    """
    best = None
    for weight, (wide, worse) in weight_formats.items():
        for cache, (deep, lost) in cache_formats.items():
            # ? Does the pair fit, and is it better?
            nbytes = (weights * wide + per_token * context * deep) / 8
            if nbytes <= memory:
                found = (worse + lost, nbytes), weight, cache
                best = found if best is None else min(best, found)
    if best is None:
        return None
    (_, nbytes), weight, cache = best
    return weight, cache, bandwidth / nbytes
