"""Checkpoint files: one safetensors file per rank, and a JSON index that is written last.

    folder/
      checkpoint.json                 which save to load; step, world, optimizer, run, layout;
                                      for each file its bytes, its checksum, and the offsets of its pieces
      save-k3v9x2/rank-0.safetensors  parameters/<name>/<key>, flat; random/<generator>; buffers/<name>, with rank 0
      save-k3v9x2/rank-1.safetensors  ...

A save writes to a new folder, and becomes the checkpoint when its index, complete and synced to disk, is renamed into
place. A save that is killed before leaves the previous checkpoint; the next save removes its folder. So the disk needs
room for two. No file contains code: JSON and safetensors are data, whereas a pickle is a program.

All CRC-32 checksums are verified before anything is loaded. The ranks that load share that work (1 GB/s each), so each
byte is read twice: for its checksum, and by its owner. Files are memory-mapped: a rank only allocates its own shard.

How others do it: torch.distributed.checkpoint writes one file per rank, and then renames its ``.metadata`` (a pickle)
into place; a Hugging Face index maps names to safetensors files.
"""

import json
import os
import shutil
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from ..torch_internals import unobserved
from .rules import COMMON, CheckpointError, require
from .shard_overlap import ParameterPart

INDEX, PREFIX, MIB = "checkpoint.json", "save-", 2**20


# Writing.


@contextmanager
def new_save(folder):
    """The name of a new folder in ``folder``, locked against other saves. Afterwards only the indexed one stays."""
    import fcntl  # not on Windows

    Path(folder).mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(f"another save to {folder} is in progress") from None
        try:
            yield Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder)).name
        finally:
            _remove_unnamed(Path(folder))
    finally:
        os.close(handle)  # and so unlocked, as if the process were killed


def write(folder, save, state):
    """Write one rank's file; returns its entry in the index."""
    path = Path(folder, save, f"rank-{state['rank']}.safetensors")
    save_file(_flat(state), path)
    _sync(path)
    places = {name: [entry["part"], entry["start"]] for name, entry in state["parameters"].items()}
    return {"bytes": path.stat().st_size, "checksum": checksum_of(path), "places": places}


def publish(folder, save, common, ranks):
    """Write and rename the index: from now on this save is the checkpoint."""
    text = json.dumps({"save": save, **common, "ranks": ranks}).encode()
    path = Path(folder, save, INDEX)
    path.write_bytes(text + b"\n%08x\n" % zlib.crc32(text))
    _sync(path)
    _sync(path.parent)
    path.rename(Path(folder, INDEX))
    _sync(Path(folder))


def _flat(state):
    tensors = {f"{key}/{name}": each.contiguous() for key in ("buffers", "random") for name, each in state[key].items()}
    for name, entry in state["parameters"].items():
        for key, tensor in (entry["vectors"] | entry["scalars"]).items():
            tensors[f"parameters/{name}/{key}"] = tensor.contiguous()
    return tensors


def _sync(path):
    """Sync to disk: it survives a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_unnamed(folder):
    try:
        named = read_index(folder)["save"] if (folder / INDEX).exists() else None
    except CheckpointError:
        return  # the index is corrupt: keep all
    for path in folder.glob(f"{PREFIX}*"):
        if path.name != named:
            shutil.rmtree(path, ignore_errors=True)


# Reading.


def read(folder, rank, ranks):
    """The states of all ranks that saved; their vectors are read lazily.

    Rank ``rank`` of ``ranks`` checks the size of each file, and its share of the checksums. ``folder`` may be a
    safetensors file with the weights of a plain model.
    """
    folder = Path(folder)
    if folder.is_file():
        return [plain(folder)]
    index = read_index(folder)
    states = []
    for number, about in enumerate(index["ranks"]):
        path = folder / index["save"] / f"rank-{number}.safetensors"
        require(path.is_file(), f"{path} is missing")
        found, written = path.stat().st_size, about["bytes"]
        require(found == written, f"{path} has {found} bytes, expected {written}")
        if number % ranks == rank:
            require(checksum_of(path) == about["checksum"], f"{path} is corrupt: checksum mismatch")
        common = {key: index[key] for key in (*COMMON, "save")}
        states.append({**common, "rank": number, **_contents(path, about["places"], index["layout"])})
    return states


def read_index(folder):
    path = Path(folder, INDEX)
    require(path.is_file(), f"{folder} has no {INDEX}: no checkpoint, or an incomplete one")
    text, given = path.read_bytes()[:-10], path.read_bytes()[-10:]
    require(given == b"\n%08x\n" % zlib.crc32(text), f"{path} is corrupt: checksum mismatch")
    return json.loads(text)


def _contents(path, places, layout):
    with unobserved():
        file = safe_open(path, "pt")
        parameters = {}
        for name, (part, start) in places.items():
            at = f"parameters/{name}/"
            vectors = {key: Vector(file, at + key) for key in layout[name]["vectors"]}
            scalars = {key: file.get_tensor(at + key) for key in layout[name]["scalars"]}
            part = part and ParameterPart(*part)
            parameters[name] = {"part": part, "start": start, "vectors": vectors, "scalars": scalars}
        return {
            "parameters": parameters,
            "buffers": _all_under("buffers/", file),
            "random": _all_under("random/", file),
        }


def _all_under(prefix, file):
    names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
    return {name.removeprefix(prefix): file.get_tensor(name) for name in names}


def plain(path):
    """Unsharded weights, as a state. The module that loads them knows which are buffers."""
    with unobserved(), safe_open(path, "pt") as file:
        tensors = _all_under("", file)
    nothing = {"step": 0, "rank": 0, "world": 1, "optimizer": None, "run": {}, "random": {}, "buffers": tensors}
    layout = {
        name: {"shape": list(tensor.shape), "options": None, "vectors": {"weight": str(tensor.dtype)}, "scalars": []}
        for name, tensor in tensors.items()
    }
    whole = {"part": None, "start": 0, "scalars": {}}
    parameters = {name: {**whole, "vectors": {"weight": tensor}} for name, tensor in tensors.items()}
    return {**nothing, "layout": layout, "parameters": parameters}


class Vector:
    """A tensor in a file. A slice of it is a view of the mapped file, and not counted as the rank's memory."""

    def __init__(self, file, name):
        self.slice = file.get_slice(name)
        self.dtype = self[0:0].dtype

    def numel(self):
        return self.slice.get_shape()[0]

    def flatten(self):
        return self

    def __getitem__(self, part):
        with unobserved():
            return self.slice[part]


# Checksums.


def checksum_of(path):
    crc = 0
    with open(path, "rb") as file:
        while chunk := file.read(MIB):
            crc = zlib.crc32(chunk, crc)
    return f"{crc:08x}"  # fixed width


def fingerprint(common):
    return zlib.crc32(json.dumps(common, default=str).encode())
