"""An engine's throughput on a CPU beside Hugging Face's: one model, the same weights, four sequences at a time.

    pip install transformers==5.23.0          into an environment of its own
    python benchmarks/serving.py

`generate` serves static batches of four, in the order of the list: a batch ends with its longest answer. Its continuous
batching, `generate_batch`, is run beside, where it runs. Greedy: all must write the same tokens. Only tokens that were
asked for count. Rounds alternate between all; medians, on one thread. Attention is torch's own for all.
"""

import statistics
import time
from functools import partial

import torch
import transformers
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

from tinydist.attention import Decoder, DecoderConfig, fused_attention
from tinydist.serving import ContinuousBatching, LLMEngine, Request, StaticBatching

SLOTS, ROUNDS = 4, 3
CONFIG = DecoderConfig()  # 2 layers of width 64, 4 heads, 2 of keys

# (tokens of the prompt, tokens of the answer) of 64 requests: make_trace(Lengths("mixed", 32, 40, 0.8, 1.0, 200), 64).
REQUESTS = [
    (45, 12), (7, 16), (13, 13), (29, 16), (10, 14), (20, 20), (25, 36), (11, 51), (8, 10), (25, 11),
    (47, 19), (13, 30), (17, 31), (78, 4), (14, 154), (14, 12), (144, 172), (7, 8), (40, 11), (5, 22),
    (13, 23), (70, 13), (56, 59), (11, 5), (15, 81), (23, 13), (8, 98), (33, 19), (125, 7), (8, 44),
    (5, 200), (27, 27), (20, 32), (89, 19), (19, 12), (21, 14), (18, 8), (10, 7), (36, 31), (8, 142),
    (54, 48), (22, 45), (32, 36), (14, 12), (11, 34), (89, 19), (31, 72), (55, 96), (25, 98), (169, 41),
    (28, 80), (10, 15), (39, 26), (30, 23), (4, 12), (20, 11), (46, 12), (40, 18), (16, 5), (8, 200),
    (31, 35), (9, 30), (61, 52), (17, 24),
]  # fmt: skip
MOST = max(map(sum, REQUESTS))


def decoder():
    torch.manual_seed(0)
    model = Decoder(CONFIG)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


def llama(model):
    """Hugging Face's with the same weights. It pairs a head's numbers i and i + d/2 where ours are neighbors."""
    sizes = dict(
        vocab_size=CONFIG.vocab_size, hidden_size=CONFIG.dim, intermediate_size=4 * CONFIG.dim,
        num_hidden_layers=CONFIG.layers, num_attention_heads=CONFIG.heads, num_key_value_heads=CONFIG.kv_heads,
        rms_norm_eps=torch.finfo(torch.float32).eps, max_position_embeddings=1024, tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    theirs = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    names = {
        "embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head",
        "attention.query": "self_attn.q_proj", "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj", "attention.out": "self_attn.o_proj",
        "attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
    }  # fmt: skip
    state = {}
    for name, weight in model.state_dict().items():
        name = name.removesuffix(".weight")
        if name.endswith(("query", "key")):
            weight = weight.unflatten(0, (-1, CONFIG.dim // CONFIG.heads // 2, 2)).transpose(1, 2).flatten(0, 2)
        _, block, inner = name.split(".", 2) if name.startswith("blocks") else ("", "", name)
        state[(f"model.layers.{block}." if block else "") + f"{names[inner]}.weight"] = weight
    theirs.load_state_dict(state)
    return theirs


def prompts():
    random = torch.Generator().manual_seed(0)
    return [torch.randint(1, CONFIG.vocab_size, (prompt,), generator=random).tolist() for prompt, _ in REQUESTS]


def by_engine(model, policy):
    engine = LLMEngine(model, policy(), SLOTS * -(-MOST // 16), attend=fused_attention)
    asked = [Request(prompt, answer) for prompt, (_, answer) in zip(prompts(), REQUESTS)]
    return [samples[0] for samples in engine.run(asked)]


@torch.no_grad()
def by_generate(model):
    written, asked = [], prompts()
    for first in range(0, len(asked), SLOTS):
        batch, answers = asked[first : first + SLOTS], [answer for _, answer in REQUESTS[first : first + SLOTS]]
        longest = max(map(len, batch))
        tokens = torch.tensor([[0] * (longest - len(each)) + each for each in batch])
        mask = torch.tensor([[0] * (longest - len(each)) + [1] * len(each) for each in batch])
        out = model.generate(tokens, attention_mask=mask, max_new_tokens=max(answers), do_sample=False)
        written += [row[longest:][:answer].tolist() for row, answer in zip(out, answers)]
    return written


@torch.no_grad()
def by_generate_batch(model):
    """Each with its own number of tokens, which its manager takes."""
    asked = prompts()
    options = ContinuousBatchingConfig(
        page_size=16, num_blocks=128, max_batch_tokens=64, max_requests_per_batch=SLOTS, use_cuda_graph=False
    )
    generation = GenerationConfig(do_sample=False, max_new_tokens=256, eos_token_id=-1, pad_token_id=0)
    with model.continuous_batching_context_manager(
        generation_config=generation, continuous_batching_config=options
    ) as manager:
        names = [manager.add_request(prompt, max_new_tokens=answer) for prompt, (_, answer) in zip(asked, REQUESTS)]
        found = {}
        while len(found) < len(names):
            result = manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                found[result.request_id] = list(result.generated_tokens)
    return [found[name] for name in names]


def measure(ways):
    """Way -> seconds of each round, and what it wrote."""
    seconds, written = {name: [] for name in ways}, {}
    for _ in range(ROUNDS + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            written[name] = way()
            seconds[name].append(time.perf_counter() - start)
    return {name: each[1:] for name, each in seconds.items()}, written  # the first warms up


def main():
    torch.set_num_threads(1)
    model = decoder()
    theirs = llama(model)
    ways = {
        "ours, continuous batching": partial(by_engine, model, partial(ContinuousBatching, SLOTS, 64)),
        "ours, static batches": partial(by_engine, model, partial(StaticBatching, SLOTS, MOST)),
        "generate, static batches": partial(by_generate, theirs),
    }
    try:
        by_generate_batch(theirs)
        ways["generate_batch"] = partial(by_generate_batch, theirs)
    except Exception as error:
        print(f"generate_batch does not run here: {type(error).__name__}: {error}")
    seconds, written = measure(ways)
    tokens, first = sum(answer for _, answer in REQUESTS), next(iter(written.values()))
    print(f"{len(REQUESTS)} requests, {tokens:,} tokens, {SLOTS} at a time; torch {torch.__version__}, "
          f"transformers {transformers.__version__}")  # fmt: skip
    for name, each in seconds.items():
        same = sum(a == b for a, b in zip(first, written[name]))
        print(f"  {name:28} {tokens / statistics.median(each):7.0f} tokens/s, {same} of {len(first)} answers the same")
    ratios = [a / b for a, b in zip(seconds["generate, static batches"], seconds["ours, continuous batching"])]
    print(f"  ours, continuous, against generate: {statistics.median(ratios):.2f} (at least 2)")


if __name__ == "__main__":
    main()
