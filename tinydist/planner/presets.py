"""Model presets, each with its source. ``find_model("Llama 3 70B")``."""

from functools import partial

from ..hardware.lookup import look_up
from .model import Experts, Latent, Model

GPT_2 = "Radford et al. 2019, table 2; as karpathy/nanoGPT@0011cd44 model.py loads them (read); parameters as built"
OPT = "Zhang et al. 2022, arXiv 2205.01068, table 1 (recalled); parameters as built"
GPT_3 = "Brown et al. 2020, table 2.1 (read); vocabulary padded to 51200 as in SC'21"
SC_21 = "Narayanan et al. 2021, arXiv 2104.04473, table 1 (read)"
KORTHIKANTI = "Korthikanti et al. 2022, arXiv 2205.05198, table 3 (read)"
LLAMA = "Touvron et al. 2023, arXiv 2302.13971, table 2; width of the MLP as in its checkpoints (recalled)"
LLAMA_2 = "Touvron et al. 2023, arXiv 2307.09288, appendix; meta-llama/Llama-2 config.json (recalled)"
LLAMA_3 = "Llama Team 2024, arXiv 2407.21783, table 3; sizes as in torchtitan@b5bcd76c models/llama3 (read)"
MIXTRAL = (
    "Jiang et al. 2024, arXiv 2401.04088, table 1 (recalled); sizes as in NVIDIA/Megatron-LM@022bcb5a "
    "megatron/core/transformer/moe/README.md (read)"
)
DEEPSEEK = "deepseek-ai/DeepSeek-V3@9b4e9788 inference/configs/config_671B.json (read); without the MTP module"
BLOOM = "BigScience 2022, bigscience@9e64edec train/tr11-176B-ml (read)"

gpt_2 = partial(Model, vocabulary=50257, tokens=1024, dropout=0.1, source=GPT_2)
megatron = partial(Model, vocabulary=51200, tokens=2048, dropout=0.1)
like_llama = partial(Model, gated=True, biases=False, tied=False, positions="rotary", norm="rms")
llama = partial(like_llama, vocabulary=32000, tokens=2048, source=LLAMA)
llama_2 = partial(like_llama, vocabulary=32000, tokens=4096, source=LLAMA_2)
llama_3 = partial(like_llama, vocabulary=128256, tokens=8192, kv_heads=8, source=LLAMA_3)

SC_21_SIZES = {  # billions -> layers, width, heads
    "1.7B": (24, 2304, 24),
    "3.6B": (30, 3072, 32),
    "7.5B": (36, 4096, 32),
    "18.4B": (40, 6144, 48),
    "39.1B": (48, 8192, 64),
    "76.1B": (60, 10240, 80),
    "145.6B": (80, 12288, 96),
    "310.1B": (96, 16384, 128),
    "529.6B": (105, 20480, 128),
    "1008B": (128, 25600, 160),
}

MODELS = {
    model.name: model
    for model in (
        gpt_2("GPT-2", 12, 768, 12),
        gpt_2("GPT-2 medium", 24, 1024, 16),
        gpt_2("GPT-2 large", 36, 1280, 20),
        gpt_2("GPT-2 XL", 48, 1600, 25),
        Model("OPT 13B", 40, 5120, 40, 50272, 2048, dropout=0.1, source=OPT),
        megatron("GPT-3 175B", 96, 12288, 96, source=GPT_3),
        megatron("Megatron 22B", 48, 6144, 64, source=KORTHIKANTI),
        *[megatron(f"Megatron {name}", *sizes, source=SC_21) for name, sizes in SC_21_SIZES.items()],
        Model("BLOOM 176B", 70, 14336, 112, 250880, 2048, positions="alibi", normed_embedding=True, source=BLOOM),
        llama("LLaMA 7B", 32, 4096, 32, inner=11008),
        llama("LLaMA 13B", 40, 5120, 40, inner=13824),
        llama("LLaMA 33B", 60, 6656, 52, inner=17920),
        llama("LLaMA 65B", 80, 8192, 64, inner=22016),
        llama_2("Llama 2 7B", 32, 4096, 32, inner=11008),
        llama_2("Llama 2 13B", 40, 5120, 40, inner=13824),
        llama_2("Llama 2 70B", 80, 8192, 64, kv_heads=8, inner=28672),
        llama_3("Llama 3 8B", 32, 4096, 32, inner=14336),
        llama_3("Llama 3 70B", 80, 8192, 64, inner=28672),
        llama_3("Llama 3 405B", 126, 16384, 128, inner=53248),
        like_llama(
            "Mixtral 8x7B", 32, 4096, 32, 32000, 32768, kv_heads=8, inner=14336,
            experts=Experts(8, 2, 14336), source=MIXTRAL,
        ),
        like_llama(
            "DeepSeek-V3", 61, 7168, 128, 129280, 4096, head_dim=128, inner=18432,
            experts=Experts(256, 8, 2048, 1, 3, True), latent=Latent(1536, 512, 64, 128, 128), source=DEEPSEEK,
        ),
    )
}  # fmt: skip


def find_model(name) -> Model:
    """``'llama-3-70b'`` is found, too; a Model is returned as it is."""
    simple = {same(each): model for each, model in MODELS.items()}
    return simple[same(name)] if isinstance(name, str) and same(name) in simple else look_up("model", MODELS, name)


def same(name):
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == ".")
