"""Files exchanged with the package gguf both ways; damaged ones."""

import random
import struct

import gguf
import numpy as np
import pytest
import torch

from tinydist.quantization import FORMATS, Blocks, load_gguf, quantize, save_gguf

WEIGHT = torch.randn(6, 512, generator=torch.Generator().manual_seed(0))
TENSORS = {name: quantize(WEIGHT, name) for name in FORMATS} | {
    "fp32": WEIGHT, "fp16": WEIGHT.half(), "bf16": WEIGHT.bfloat16(), "row": WEIGHT[0], "cube": WEIGHT.view(2, 3, 512),
    "transposed": WEIGHT.T,
}  # fmt: skip
KEYS = {
    "general.architecture": "llama", "count": 3, "below": -1, "big": 2**40, "flag": True, "rate": 1.5,
    "words": ["x", "ü"],
    "counts": [1, 2], "rates": [1.0, 2.0], "flags": [True, False],
}  # fmt: skip


def as_bytes(tensor):
    data = tensor.data if isinstance(tensor, Blocks) else tensor
    return data.contiguous().view(torch.uint8).flatten()


def same(a, b):
    if isinstance(a, Blocks):
        return a.format == b.format and a.data.equal(b.data)
    return a.dtype == b.dtype and a.equal(b)


@pytest.fixture
def path(tmp_path):
    save_gguf(tmp_path / "model.gguf", TENSORS, KEYS)
    return tmp_path / "model.gguf"


def test_gguf_reads_what_we_write(path):
    reader = gguf.GGUFReader(path)
    assert {name: each.contents() for name, each in reader.fields.items() if name in KEYS} == KEYS
    for each in reader.tensors:
        ours = TENSORS[each.name]
        assert tuple(reversed(each.shape.tolist())) == tuple(ours.shape)
        assert np.array_equal(each.data.reshape(-1).view(np.uint8), as_bytes(ours).numpy())
    assert len(reader.tensors) == len(TENSORS)


def test_we_read_what_gguf_writes(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "llama")
    writer.add_uint32("count", 3)
    writer.add_float64("rate", 2.5)
    writer.add_array("counts", [1, 2, 3])
    writer.add_custom_alignment(64)
    writer.add_tensor("fp32", WEIGHT.numpy())
    for name in ("Q4_0", "Q8_0"):
        kind = gguf.GGMLQuantizationType[name]
        writer.add_tensor(name, gguf.quantize(WEIGHT.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors, keys = load_gguf(tmp_path / "theirs.gguf")
    assert keys["count"] == 3 and keys["rate"] == 2.5 and keys["counts"] == [1, 2, 3]
    assert keys["general.alignment"] == 64
    assert all(same(tensors[name], TENSORS[name]) for name in ("fp32", "Q4_0", "Q8_0"))


def test_we_read_what_we_write(path):
    tensors, keys = load_gguf(path)
    assert keys == KEYS and tensors.keys() == TENSORS.keys()
    assert all(same(tensors[name], each) for name, each in TENSORS.items())


def test_an_alignment_of_its_own(tmp_path):
    save_gguf(tmp_path / "wide.gguf", TENSORS, alignment=256)
    assert all(each.data_offset % 256 == 0 for each in gguf.GGUFReader(tmp_path / "wide.gguf").tensors)
    assert same(load_gguf(tmp_path / "wide.gguf")[0]["Q4_K"], TENSORS["Q4_K"])


def test_what_was_read_can_be_written_again(tmp_path):
    """The alignment, too: where tensors begin is counted with the one that the file names."""
    keys = {"integers": [1, -1], "large": [2**40, 1], "unsigned": 2**64 - 1, "float": 1e300, "none": []}
    save_gguf(tmp_path / "one.gguf", TENSORS, keys | {"general.alignment": 512})
    tensors, found = load_gguf(tmp_path / "one.gguf")
    assert found == keys | {"general.alignment": 512}
    save_gguf(tmp_path / "two.gguf", tensors, found)
    assert (tmp_path / "two.gguf").read_bytes() == (tmp_path / "one.gguf").read_bytes()
    assert all(same(tensors[name], each) for name, each in TENSORS.items())


def test_a_damaged_file_is_refused_in_words_or_read(path):
    """Bytes of the header changed, or the file cut off: nothing but ValueError, and never more memory than the file."""
    whole, dice, refused = path.read_bytes(), random.Random(0), 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(dice.randint(1, 3)):
            data[dice.randrange(1000)] = dice.randrange(256)
        if dice.random() < 0.3:
            data = data[: dice.randrange(1, len(data))]
        path.write_bytes(data)
        try:
            load_gguf(path)
        except ValueError as error:
            assert str(error).startswith("load_gguf: ")
            refused += 1
    assert refused > 200


def header(*parts):
    return b"GGUF" + struct.pack("<IQQ", *parts)


def described(shape, code, begin):
    return struct.pack("<Q", 1) + b"w" + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, code, begin)


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "is empty"),
        (b"PK\x03\x04" + bytes(20), "at byte 0: does not begin with GGUF"),
        (b"GGUF\x02\0\0\0" + bytes(16), "version must be 3, got 2"),
        (header(3, 1, 0), "8 bytes were announced, and 0 are left"),
        (header(3, 0, 1) + struct.pack("<Q", 2**60), r"1152921504606846976 bytes were announced"),
        (header(3, 0, 1) + struct.pack("<Q1sIIQ", 1, b"k", 9, 4, 2**61), "a list of 2305843009213693952 was announced"),
        (header(3, 0, 1) + struct.pack("<Q1sI", 1, b"k", 99), "the type of a value is 99, which we do not know"),
        (header(3, 1, 0) + described([32], 99, 0), "the type of a tensor is 99; we know fp32, fp16, bf16, Q4_0"),
        (header(3, 1, 0) + described([48], 2, 0), "'w' has 48 weights in a row, which blocks of 32 do not divide"),
        (header(3, 1, 0) + described([32], 2, 1 << 50) + bytes(64), "18 bytes were announced, and 0 are left"),
        (header(3, 1, 0) + described([2**62, 2**62], 0, 0) + bytes(64), "bytes were announced"),
        (header(3, 1, 0) + described([0, 32], 2, 0) + bytes(64), r"a tensor has the shape \[32, 0\]"),
        (header(3, 2, 0) + 2 * described([32], 2, 0) + bytes(64), "'w' is there twice"),
        (header(3, 1, 0) + described([1] * 9, 2, 0), "a tensor has 9 dims; 1 to 4 are possible"),
    ],
)
def test_damage_is_named(tmp_path, data, words):
    (tmp_path / "damaged.gguf").write_bytes(data)
    with pytest.raises(ValueError, match=words):
        load_gguf(tmp_path / "damaged.gguf")


@pytest.mark.parametrize(
    "tensors, keys, words",
    [
        (
            {"w": torch.zeros(2, dtype=torch.int64)},
            {},
            "save_gguf: 'w' must be in blocks, fp32, fp16 or bf16, got torch.int64",
        ),
        ({"w": torch.zeros(())}, {}, r"must have 1 to 4 dims, none of 0, got \[\]"),
        ({}, {"key": None}, "save_gguf: 'key' must be a str, bool, int, float, or a list of one of them, got None"),
        ({}, {"key": [1, "a"]}, "a list of one of them"),
        ({}, {"key": 2**70}, "a list of one of them"),
        ({}, {"key": [True, 2]}, "a list of one of them"),
        ({}, {1: 2}, r"save_gguf: the names of tensors and keys must be a list, each item a str, got \[1\]"),
        ({}, {"general.alignment": 24}, "save_gguf: general.alignment must be a power of 2, got 24"),
    ],
)
def test_what_cannot_be_written(tmp_path, tensors, keys, words):
    with pytest.raises(ValueError, match=words):
        save_gguf(tmp_path / "model.gguf", tensors, keys)
