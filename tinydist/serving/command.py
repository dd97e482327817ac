"""``python -m tinydist serve``: a small decoder with an OpenAI-compatible API, on 127.0.0.1.

    python -m tinydist serve --steps 300
    curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\
        -d '{"prompt": "The ", "max_tokens": 40}'

It is first trained on the bundled text, and writes text that looks a little like it.
"""

import argparse
import asyncio
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ..attention import Decoder, DecoderConfig, fused_attention
from ..console.command_name import command
from ..model import batch
from ..rules import count, whole, within, words_of
from .engine import LLMEngine
from .http_server import LOOPBACK, Server
from .parallel import Replicas
from .scheduler import ContinuousBatching

RULES = {"steps": whole, "port": within(0, 65535), "replicas": count}


def options():
    about = "Serve a small decoder with an OpenAI-compatible completions API."
    adds = argparse.ArgumentParser(
        prog=command("serve"), description=about, usage="%(prog)s [options]", allow_abbrev=False
    )
    add = adds.add_argument
    host = "address to bind; 0.0.0.0 accepts connections from any host (default: %(default)s)"
    add("--host", default=LOOPBACK, metavar="ADDRESS", help=host)
    names = "name under which clients may call, beside addresses, localhost and this machine's name"
    add("--allow-host", nargs="+", default=(), metavar="NAME", help=names)
    add("--port", type=int, default=8000, help="port to listen on; 0: any free port (default: %(default)s)")
    add("--model", default="", metavar="layers=2,dim=64,heads=4,kv_heads=2", help="sizes of the decoder")
    add("--steps", type=int, default=100, metavar="N", help="training steps before serving (default: %(default)s)")
    add("--weights", metavar="FILE", help="safetensors file to load; written after training if it does not exist")
    seqs = "maximum number of concurrent sequences; further requests wait in order (default: %(default)s)"
    add("--max-num-seqs", type=int, default=16, metavar="N", help=seqs)
    tokens = "token budget per forward pass (default: %(default)s)"
    add("--max-num-batched-tokens", type=int, default=256, metavar="N", help=tokens)
    add("--num-blocks", type=int, default=512, metavar="N", help="number of KV-cache blocks (default: %(default)s)")
    add("--block-size", type=int, default=16, metavar="N", help="tokens per KV-cache block (default: %(default)s)")
    add("--replicas", type=int, default=1, metavar="N", help="engine replicas behind a router (default: %(default)s)")
    return adds


def main(words):
    """The exit status: 0 after Ctrl-C, 1 if it cannot begin."""
    chosen = options().parse_args(words)
    try:
        for name, rule in RULES.items():
            if not rule(getattr(chosen, name)):
                raise ValueError(f"--{name} must be {words_of(rule)}, got {getattr(chosen, name)}")
        asyncio.run(serve(server_of(chosen), chosen.port, chosen.host))
    except KeyboardInterrupt:
        print("Done.")
    except (ValueError, TypeError, OSError, SafetensorError) as error:
        print(f"serve: {error}")
        return 1
    return 0


async def serve(server, port, host):
    http, port = server.listen(port, host)
    print(f"{server.model} at http://{host}:{port}/v1 (Ctrl-C stops it)", flush=True)
    try:
        await forever()
    finally:
        http.stop()


async def forever():
    await asyncio.Event().wait()


def server_of(chosen):
    """What the options ask for, ready to listen."""
    model = decoder(chosen)
    memory = dict(num_blocks=chosen.num_blocks, block_size=chosen.block_size, attend=fused_attention)
    limits = chosen.max_num_seqs, chosen.max_num_batched_tokens
    engines = [LLMEngine(model, ContinuousBatching(*limits), **memory) for _ in range(chosen.replicas)]
    return Server(engines[0] if len(engines) == 1 else Replicas(engines), allow_hosts=chosen.allow_host)


def decoder(chosen):
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(**sizes(chosen.model)))
    file = Path(chosen.weights) if chosen.weights else None
    if file and file.exists():
        found, wanted = load_file(file), {name: each.shape for name, each in model.state_dict().items()}
        if {name: each.shape for name, each in found.items()} != wanted:
            raise ValueError(f"the weights in {file} do not match --model")
        model.load_state_dict(found)
    else:
        train(model, chosen.steps)
        if file:
            save_file(model.state_dict(), file)
    return model.eval()


def sizes(text):
    """``layers=2,dim=64`` as a dict of integers."""
    pairs = [each.partition("=") for each in text.split(",") if each]
    for name, _, number in pairs:
        if name not in ("layers", "dim", "heads", "kv_heads", "latent") or not number.isdecimal():
            raise ValueError(f"--model takes layers=2,dim=64,heads=4,kv_heads=2, got {text!r}")
    return {name: int(number) for name, _, number in pairs}


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        loss = model.loss(*batch(step, 16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step + 1 == steps:
            print(f"trained for {steps} steps, loss {loss.item():.2f} nats per byte", flush=True)
