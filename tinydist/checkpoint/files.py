"""A checkpoint as files: numbers in safetensors, one file a rank; what they are in one JSON file, written last.

    folder/
      checkpoint.json                 which save is the one to load; step, world, optimizer, run, layout;
                                      of each file its bytes, its checksum, and where its pieces lie
      save-k3v9x2/rank-0.safetensors  parameters/<name>/<key>, flat; random/<generator>; buffers/<name>, with rank 0
      save-k3v9x2/rank-1.safetensors  ...

A save writes to a new folder, and becomes the checkpoint when its JSON file, complete and on the disk, is renamed into
place. Whoever is killed before leaves the one before; what no JSON file names is removed by the next save. So a disk
must have room for two. No file has code in it: JSON and safetensors are data, where a pickle is a program.

Checksums are CRC-32, and all are compared before anything is loaded. The ranks that load share that work (1 GB/s each),
so a byte is read twice: to check it, and by who owns it. Numbers are read where they lie: what a rank takes is all that
it holds.

How others do it: torch.distributed.checkpoint writes a file a rank, and then renames its ``.metadata`` (a pickle) into
place; a Hugging Face index maps names to safetensors files.
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
from .pieces import Part
from .rules import COMMON, CheckpointError, require

INDEX, PREFIX, MIB = "checkpoint.json", "save-", 2**20


# Writing.


@contextmanager
def new_save(folder):
    """The name of a new folder in ``folder``, while no other save goes on there. Then only the named one stays."""
    import fcntl  # which Windows has not

    Path(folder).mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(f"another save into {folder} is under way") from None
        try:
            yield Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder)).name
        finally:
            _remove_unnamed(Path(folder))
    finally:
        os.close(handle)  # and so unlocked, as if the process were killed


def write(folder, save, state):
    """One rank's file. What the index is to say of it."""
    path = Path(folder, save, f"rank-{state['rank']}.safetensors")
    save_file(_flat(state), path)
    _sync(path)
    places = {name: [entry["part"], entry["start"]] for name, entry in state["parameters"].items()}
    return {"bytes": path.stat().st_size, "checksum": checksum_of(path), "places": places}


def publish(folder, save, common, ranks):
    """The index is written, and renamed: from now on it is this save that is loaded."""
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
    """What is written there survives if the machine stops."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_unnamed(folder):
    try:
        named = read_index(folder)["save"] if (folder / INDEX).exists() else None
    except CheckpointError:
        return  # who knows which it was
    for path in folder.glob(f"{PREFIX}*"):
        if path.name != named:
            shutil.rmtree(path, ignore_errors=True)


# Reading.


def read(folder, rank, ranks):
    """The states of all ranks that saved; their vectors are read when they are asked for.

    Rank ``rank`` of ``ranks`` looks at each file's length, and checks its share of the checksums. ``folder`` may be a
    file, with the weights of a plain model.
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
        require(found == written, f"{path} has {found} bytes, but {written} were written")
        if number % ranks == rank:
            require(checksum_of(path) == about["checksum"], f"{path} is not what was written: its checksum differs")
        common = {key: index[key] for key in (*COMMON, "save")}
        states.append({**common, "rank": number, **_contents(path, about["places"], index["layout"])})
    return states


def read_index(folder):
    path = Path(folder, INDEX)
    require(path.is_file(), f"{folder} has no {INDEX}: there is no checkpoint, or it was never finished")
    text, given = path.read_bytes()[:-10], path.read_bytes()[-10:]
    require(given == b"\n%08x\n" % zlib.crc32(text), f"{path} is not what was written: its checksum differs")
    return json.loads(text)


def _contents(path, places, layout):
    with unobserved():
        file = safe_open(path, "pt")
        parameters = {}
        for name, (part, start) in places.items():
            at = f"parameters/{name}/"
            vectors = {key: Vector(file, at + key) for key in layout[name]["vectors"]}
            scalars = {key: file.get_tensor(at + key) for key in layout[name]["scalars"]}
            part = part and Part(*part)
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
    """Whole weights, as a state. Which of them are buffers, who loads them knows."""
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
    """One of a file. A slice of it is a view of the file: pages of the disk's cache, and none of the rank's memory."""

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
    return f"{crc:08x}"  # as long for every content


def fingerprint(common):
    return zlib.crc32(json.dumps(common, default=str).encode())
