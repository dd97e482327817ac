"""A GGUF file: a model's metadata by key, and its tensors by name.

    "GGUF" | version 3 | number of tensors | number of keys
    for each key:     its name | its type | its value
    for each tensor:  its name | how many dims | the dims, the last one first | its type | where it begins
    zeros up to a multiple of the alignment
    the tensors' bytes, each begins at a multiple of the alignment

All numbers are little-endian; a text is its length (8 bytes) and its bytes. Nothing in it is run, and what a file says
of itself is checked before it is believed: lengths against the file's size, types against those that we know, tensors
against what lies behind the header. Source: ggml-org/ggml, docs/gguf.md (read).
"""

import mmap
import struct
from math import prod
from pathlib import Path

import torch

from ..rules import each_of, flag, integer, must, power_of_2, validate, within
from .blocks import FORMATS, Blocks

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
PLAIN = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}
PLAIN_OF = {code: dtype for dtype, code in PLAIN.items()}
FORMAT_OF = {each.code: each for each in FORMATS.values()}
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
U32, F32, BOOL, TEXT, LIST, U64, I64, F64 = 4, 6, 7, 8, 9, 10, 11, 12
FITS = {  # the types of values that are written: the first that fits a value, or all of a list
    TEXT: lambda value: isinstance(value, str),
    BOOL: flag,
    U32: within(0, 2**32 - 1),
    I64: lambda value: integer(value) and -(2**63) <= value < 2**63,
    U64: within(0, 2**64 - 1),
    F32: lambda value: isinstance(value, float) and not torch.finfo(torch.float32).max < abs(value) < torch.inf,
    F64: lambda value: isinstance(value, float),
}
MOST_DIMS = 4  # ggml's


# Write.


@validate(tensors=dict, keys=dict, alignment=power_of_2)
def save_gguf(path, tensors, keys=None, alignment=ALIGNMENT):
    """``tensors``: name -> ``Blocks``, or a tensor in fp32, fp16 or bf16.
    ``keys``: name -> str, bool, int, float, or a list of one of them. Floats become fp32, if they are not too large.
    ``alignment``: bytes; by default that of the key general.alignment, or 32."""
    keys = (keys or {}) | ({"general.alignment": alignment} if alignment != ALIGNMENT else {})
    must("save_gguf", "the names of tensors and keys", each_of(str, least=0), [*tensors, *keys])
    alignment = must("save_gguf", "general.alignment", power_of_2, keys.get("general.alignment", ALIGNMENT))
    header = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(keys))]
    for name, value in keys.items():
        header += [text(name), *typed(name, value)]
    begin = 0
    for name, tensor in tensors.items():
        code, dims = type_and_dims(name, tensor)
        header += [text(name), struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, code, begin)]
        begin += padded(tensor.nbytes, alignment)
    with open(path, "wb") as file:
        write_padded(file, b"".join(header), alignment)
        for tensor in tensors.values():
            data = tensor.data if isinstance(tensor, Blocks) else tensor.detach()
            write_padded(file, data.contiguous().view(torch.uint8).numpy().tobytes(), alignment)


def type_and_dims(name, tensor):
    if not isinstance(tensor, Blocks | torch.Tensor):
        raise TypeError(f"save_gguf: {name!r} must be Blocks or a tensor, got a {type(tensor).__name__}")
    if isinstance(tensor, torch.Tensor) and tensor.dtype not in PLAIN:
        raise ValueError(f"save_gguf: {name!r} must be in blocks, fp32, fp16 or bf16, got {tensor.dtype}")
    if not 1 <= len(tensor.shape) <= MOST_DIMS or 0 in tensor.shape:
        raise ValueError(f"save_gguf: {name!r} must have 1 to {MOST_DIMS} dims, none of 0, got {list(tensor.shape)}")
    code = tensor.format.code if isinstance(tensor, Blocks) else PLAIN[tensor.dtype]
    return code, list(reversed(tensor.shape))


def typed(name, value):
    """The type of a key's value, and the value."""
    several = isinstance(value, list | tuple)
    values = value if several else [value]
    kind = next((kind for kind, fits in FITS.items() if all(map(fits, values))), None)
    if kind is None:
        must_be = "must be a str, bool, int, float, or a list of one of them"
        raise ValueError(f"save_gguf: {name!r} {must_be}, got {value!r}")
    packed = b"".join(text(each) if kind == TEXT else struct.pack("<" + NUMBERS[kind], each) for each in values)
    return struct.pack("<IIQ", LIST, kind, len(values)) if several else struct.pack("<I", kind), packed


def text(words):
    encoded = words.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def padded(nbytes, alignment):
    return -(-nbytes // alignment) * alignment


def write_padded(file, data, alignment):
    file.write(data + bytes(padded(len(data), alignment) - len(data)))


# Read.


def load_gguf(path):
    """(tensors, keys), as ``save_gguf`` takes them. Raises ``ValueError`` for a damaged file, and says where."""
    if Path(path).stat().st_size == 0:
        raise ValueError(f"load_gguf: {path} is empty")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = Reader(data, path)
        if reader.take(4) != MAGIC:
            raise reader.damaged(f"does not begin with {MAGIC.decode()}", at=0)
        (version,) = reader.numbers("I")
        if version != VERSION:
            raise reader.damaged(f"version must be {VERSION}, got {version}", at=4)
        tensors, keys = reader.numbers("QQ")
        keys = reader.by_name(keys, lambda: reader.value(*reader.numbers("I")))
        described = reader.by_name(tensors, reader.described)
        alignment = keys.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise reader.damaged(f"general.alignment must be a power of two, got {alignment!r}")
        reader.at = padded(reader.at, alignment)
        return {name: reader.tensor(name, *each) for name, each in described.items()}, keys


class Reader:
    def __init__(self, data, path):
        self.data, self.path, self.at = data, path, 0

    def damaged(self, why, at=None):
        return ValueError(
            f"load_gguf: {self.path} is no intact GGUF file: at byte {self.at if at is None else at}: {why}"
        )

    def take(self, nbytes):
        left = len(self.data) - self.at
        if nbytes > left:
            raise self.damaged(f"{nbytes} bytes were announced, and {max(left, 0)} are left")
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def numbers(self, kinds):
        return struct.unpack("<" + kinds, self.take(struct.calcsize("<" + kinds)))

    def text(self):
        try:
            return self.take(*self.numbers("Q")).decode()
        except UnicodeDecodeError as error:
            raise self.damaged("a text is no UTF-8") from error

    def by_name(self, count, read):
        found = {}
        for _ in range(count):
            name = self.text()
            if name in found:
                raise self.damaged(f"{name!r} is there twice")
            found[name] = read()
        return found

    def value(self, kind):
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            return self.numbers(self.letter(kind))[0]
        kind, count = self.numbers("IQ")
        if count > len(self.data) - self.at:
            raise self.damaged(f"a list of {count} was announced, and {len(self.data) - self.at} bytes are left")
        return (
            [self.text() for _ in range(count)] if kind == TEXT else list(self.numbers(f"{count}{self.letter(kind)}"))
        )

    def letter(self, kind):
        if kind not in NUMBERS:
            raise self.damaged(f"the type of a value is {kind}, which we do not know")
        return NUMBERS[kind]

    def described(self):
        """Type, shape and offset of a tensor."""
        (dims,) = self.numbers("I")
        if not 1 <= dims <= MOST_DIMS:
            raise self.damaged(f"a tensor has {dims} dims; 1 to {MOST_DIMS} are possible")
        *shape, code, begin = self.numbers(f"{dims}QIQ")
        if 0 in shape:
            raise self.damaged(f"a tensor has the shape {shape[::-1]}")
        if code not in PLAIN_OF and code not in FORMAT_OF:
            known = ", ".join(FORMATS)
            raise self.damaged(f"the type of a tensor is {code}; we know fp32, fp16, bf16, {known}")
        return code, list(reversed(shape)), begin

    def tensor(self, name, code, shape, begin):
        """``begin``: behind the header, which ends here."""
        format, dtype = FORMAT_OF.get(code), PLAIN_OF.get(code)
        of, nbytes = (format.weights, format.nbytes) if format else (1, dtype.itemsize)
        if shape[-1] % of:
            raise self.damaged(f"{name!r} has {shape[-1]} weights in a row, which blocks of {of} do not divide")
        there = Reader(self.data, self.path)
        there.at = self.at + begin
        data = torch.frombuffer(bytearray(there.take(prod(shape) // of * nbytes)), dtype=torch.uint8)
        rows = data.view(*shape[:-1], shape[-1] // of * nbytes)
        return Blocks(rows, format) if format else rows.view(dtype)
