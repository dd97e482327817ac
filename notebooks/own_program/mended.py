"""train.py without its faults (chapter 15), and with two options: --parts of a batch, and --snapshot of memory.

torchrun --nproc-per-node 8 mended.py --text text.txt --epochs 3
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Text(Dataset):
    """Pieces of a text. A sample is a piece of ``context`` bytes, and the bytes that follow each of them."""

    def __init__(self, path, begin, end, context):
        """``begin`` and ``end``: which part of the text, from 0 to 1."""
        with open(path, "rb") as file:
            data = file.read()
        part = bytearray(data[int(begin * len(data)) : int(end * len(data))])
        self.tokens = torch.frombuffer(part, dtype=torch.uint8).long()
        self.context = context

    def __len__(self):
        return (len(self.tokens) - 1) // self.context

    def __getitem__(self, number):
        start = number * self.context
        piece = self.tokens[start : start + self.context + 1]
        return piece[:-1], piece[1:]


def rotate(x, cos, sin):
    """Rotary position embedding."""
    left, right = x.chunk(2, dim=-1)
    rotated = [left * cos - right * sin, right * cos + left * sin]
    return torch.cat(rotated, dim=-1).type_as(x)


class Block(nn.Module):
    """Attention and MLP."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x, cos, sin):
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [batch, heads, context, dim of a head]
        q = rotate(q, cos, sin)
        k = rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocab, layers, dim, heads, context):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        frequencies = 10_000.0 ** (-torch.arange(0, dim // heads, 2) * heads / dim)
        angles = torch.outer(torch.arange(context), frequencies)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def losses_of(model, tokens, targets, args):
    """The loss of each token: [batch, context]."""
    tokens = tokens.to(args.device)
    targets = targets.to(args.device)
    with torch.autocast(args.device, torch.bfloat16):
        logits = model(tokens)
    logits = logits.flatten(0, 1).float()
    losses = F.cross_entropy(logits, targets.flatten(), reduction="none")
    return losses.view_as(targets)


@record_function("step")
def train_step(model, optimizer, tokens, targets, step, args):
    total = 0.0
    token_parts = tokens.chunk(args.parts)
    target_parts = targets.chunk(args.parts)
    for number in range(len(token_parts)):
        model.require_backward_grad_sync = number == len(token_parts) - 1
        losses = losses_of(model, token_parts[number], target_parts[number], args)
        loss = losses.mean() / len(token_parts)
        loss.backward()
        total = total + loss.detach()
    if args.rank == 0 and step % args.log_every == 0:
        log_gradients(model, step)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total


@record_function("log")
def log_gradients(model, step):
    """The norm and a histogram of each parameter's gradient."""
    norms, histograms = {}, {}
    for name, parameter in model.named_parameters():
        norms[name] = parameter.grad.norm().item()
        histograms[name] = torch.histc(parameter.grad, bins=16).tolist()
    log(step=step, norms=norms, histograms=histograms)


@record_function("evaluate")
@torch.no_grad()
def evaluate(model, loader, args):
    """The mean loss at each position of the context."""
    model.eval()
    losses = torch.zeros(args.context, device=args.device)
    count = 0
    for tokens, targets in loader:
        losses += losses_of(model, tokens, targets, args).sum(0)
        count += len(tokens)
    model.train()
    count = torch.tensor(count, device=args.device)
    dist.all_reduce(losses)
    dist.all_reduce(count)
    return losses / count


def save(model, optimizer):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, "checkpoint.pt")


def log(**values):
    """Append a line to the log, whichever rank calls it."""
    with open("log.jsonl", "a") as file:
        file.write(json.dumps(values) + "\n")


def main(args):
    args.device = "cuda" if torch.cuda.is_available() else "cpu"
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        device = torch.device("cuda", torch.cuda.current_device())
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    args.rank = dist.get_rank()
    ranks = dist.get_world_size()

    if args.snapshot:
        torch.cuda.memory._record_memory_history(max_entries=100_000)
    torch.manual_seed(0)
    model = GPT(args.vocab, args.layers, args.dim, args.heads, args.context)
    model = DDP(model.to(args.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    train_set = Text(args.text, 0.0, 0.9, args.context)
    test_set = Text(args.text, 0.9, 1.0, args.context)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, args.batch, sampler=sampler, drop_last=True)
    test_sampler = DistributedSampler(test_set, shuffle=False)
    test_loader = DataLoader(test_set, args.batch, sampler=test_sampler)

    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for tokens, targets in loader:
            began = time.perf_counter()
            loss = train_step(model, optimizer, tokens, targets, step, args)
            step += 1
            if step % args.log_every == 0:
                dist.all_reduce(loss)
                loss = loss.item() / ranks
                speed = ranks * tokens.numel() / (time.perf_counter() - began)
                if args.rank == 0:
                    print(f"step {step}: loss {loss:.1f}, {speed:,.0f} tokens/s")
        test = evaluate(model.module, test_loader, args).mean().item()
        if args.rank == 0:
            print(f"epoch {epoch}: test loss {test:.1f}")
            save(model.module, optimizer)
        dist.barrier()
    if args.snapshot and args.rank == 0:
        torch.cuda.memory._dump_snapshot("snapshot.pickle")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", default="text.txt")
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--snapshot", action="store_true")
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-3)
    main(parser.parse_args())
