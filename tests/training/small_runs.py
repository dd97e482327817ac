"""Engines that are awkward to save, small enough to be saved often; and all that a checkpoint has, put together."""

from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

import tinydist
from tinydist.attention import Decoder, DecoderConfig
from tinydist.checkpoint import files
from tinydist.experts import Router, alone, with_experts
from tinydist.model import GPT, GPTConfig
from tinydist.tensor_parallel.cuts import cut_of
from tinydist.training import parallelize
from tinydist.training.checkpoint import EngineState, save

TOKENS, ROWS = 37, 24  # a vocabulary that no number of ranks divides; rows that 1, 2, 3, 4 and 8 do


def gpt(dropout=0.0):
    """Tied embeddings, and three blocks of rows in each weight of queries, keys and values."""
    torch.manual_seed(5)
    return GPT(GPTConfig(vocab_size=TOKENS, context=8, layers=4, heads=6, dim=12, dropout=dropout))


def gpt_with_experts():
    router = partial(Router, bias=True)  # a buffer
    return with_experts(gpt(), 4, 2, hidden=8, shared=1, every=2, group=alone(), router=router)


def half_frozen():
    """The tied embedding is, too."""
    model = gpt()
    for part in (model.embedding, model.position, model.blocks[1].mlp):
        part.requires_grad_(False)
    return model


def wider():
    torch.manual_seed(5)
    return GPT(GPTConfig(vocab_size=TOKENS, context=8, layers=4, heads=6, dim=24))


def longer():
    torch.manual_seed(5)
    return GPT(GPTConfig(vocab_size=TOKENS, context=8, layers=5, heads=6, dim=12))


def decoder():
    """Fewer heads of keys than of queries: on 4 ranks there are copies."""
    torch.manual_seed(5)
    return Decoder(DecoderConfig(vocab_size=TOKENS, layers=4, heads=4, kv_heads=2, dim=16))


def groups_of(model):
    """No decay of what is no matrix."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    return [{"params": matrices}, {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]


def made(plan, make=gpt, optimizer=torch.optim.AdamW, lr=0.01, **options):
    model = make()
    return parallelize(model, plan, optimizer, groups_of(model), lr=lr, **options)


def shake(engine):
    """Other numbers on every rank, also where they ought to be the same: what is saved is those of one of them."""
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for zero in engine.zero.values():
        for bucket in zero.buckets:
            bucket.grad = torch.randn(bucket.master.shape, generator=generator)
        zero.sharded_step.step()
        zero._after_step()
        zero.zero_grad()
    engine.steps += 1


def rows(engine, step):
    """Tokens and targets of this data rank."""
    text = torch.randint(TOKENS, (ROWS, 9), generator=torch.Generator().manual_seed(step))
    mesh, plan = engine.mesh, engine.plan
    mine = text.chunk(plan.dp)[mesh.get_local_rank("replicate") * plan.shard + mesh.get_local_rank("shard")]
    return mine[:, :-1].contiguous(), mine[:, 1:].contiguous()


def losses(engine, steps):
    return [engine.step(*rows(engine, step)).loss for step in steps]


def launched(program, ranks, *arguments):
    return tinydist.launch(program, ranks, *arguments, observe=False).results


def saved_by(plan, folder, make=gpt, **how):
    engine = made(plan, make, **how)
    shake(engine)
    save(engine, folder, step=7, extra={"of": "a test"})
    return engine.steps


def everything_in(folder):
    """Name -> key -> the whole tensor: number by number, and each is there once."""
    whole, seen = {}, {}
    for state in files.read(Path(folder), 0, 1):
        for name, entry in state["parameters"].items():
            shape = state["layout"][name]["shape"]
            numbers = torch.arange(torch.Size(shape).numel())
            if entry["part"]:
                lines, first, columns = entry["part"]
                numbers = numbers.view(lines, -1)[:, first : first + columns].flatten()
            for key, vector in entry["vectors"].items():
                here = numbers[entry["start"] : entry["start"] + vector.numel()]
                flat, times = (each.setdefault((name, key), torch.zeros(shape)).view(-1) for each in (whole, seen))
                flat[here] = vector[0 : vector.numel()].to(flat)
                times[here] += 1
    assert all((times == 1).all() for times in seen.values())
    return whole


def differences(engine, whole):
    """Names of what this rank has, and ought to have otherwise: by a checkpoint's ``whole`` numbers."""
    run = EngineState(engine)
    for row in run.rows:
        vectors, _ = run.kept(row)
        for parameter, (start, place, size) in row.segments.items():
            cut, name = cut_of(parameter), engine.names[parameter]
            for key, vector in vectors.items():
                own = whole[name, key]
                own = (cut.own(own) if cut else own).flatten()[start : start + size]
                if not torch.equal(vector[place : place + size], own):
                    yield name, key
            if engine.plan.zero < 3:
                own = whole[name, "weight"].to(parameter.dtype)
                if not torch.equal(parameter.detach(), cut.own(own) if cut else own):
                    yield name, "parameter"
