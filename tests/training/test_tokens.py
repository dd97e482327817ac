"""Files of tokens: what is written is read, and what was not written so is refused with the reason."""

import json
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tinydist.training import TokenFile, encode, hold_out, tokens

TEXT = "Ångström wrote\nthree lines,\n\nand more. " * 3


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_bytes_are_tokens(text, tmp_path):
    found = encode(text, tmp_path / "some.tokens")
    assert bytes(found[:]) == TEXT.encode() and len(found) == len(TEXT.encode())
    assert found.vocabulary == 256 and found[0:3].dtype == np.uint8
    assert isinstance(found.tokens, np.memmap) and (tmp_path / "some.tokens").read_bytes() == TEXT.encode()
    assert json.loads((tmp_path / "some.tokens.json").read_text())["count"] == len(found)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["some.tokens", "some.tokens.json", "text.txt"]


def of_words(vocabulary):
    """As far as encode knows it, a Tokenizer of the package tokenizers: a token is the length of a word."""

    def ids(text, add_special_tokens):
        return types.SimpleNamespace(ids=[len(word) for word in text.split()])

    made = types.SimpleNamespace(encode=ids, get_vocab_size=lambda: vocabulary)
    return types.SimpleNamespace(Tokenizer=types.SimpleNamespace(from_file=lambda path: made))


@pytest.mark.parametrize(
    "vocabulary, dtype", [(256, np.uint8), (257, np.uint16), (2**16, np.uint16), (2**16 + 1, np.uint32)]
)
def test_a_vocabulary_decides_how_wide_a_token_is(text, tmp_path, monkeypatch, vocabulary, dtype):
    monkeypatch.setitem(sys.modules, "tokenizers", of_words(vocabulary))
    monkeypatch.setattr(tokens, "MIB", 16)  # pieces, which end where a line ends
    found = encode(text, tmp_path / "some.tokens", tokenizer=text)
    assert found[:].tolist() == [len(word) for word in TEXT.split()]
    assert (found[:].dtype, found.vocabulary, found.tokenizer) == (dtype, vocabulary, "text.txt")


def test_a_real_tokenizer_gives_its_own_tokens(text, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    made.train_from_iterator([TEXT], tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>"]))
    made.save(str(tmp_path / "bpe.json"))
    found = encode(text, tmp_path / "some.tokens", tokenizer=tmp_path / "bpe.json")
    assert found[:].tolist() == made.encode(TEXT).ids and found.vocabulary == made.get_vocab_size()


def test_without_the_package_it_says_what_to_install(text, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModuleNotFoundError, match=r"^encode: a tokenizer's file needs .*: pip install tokenizers$"):
        encode(text, tmp_path / "some.tokens", tokenizer="gpt2.json")
    assert list(tmp_path.iterdir()) == [text]


@given(some.data())
def test_a_byte_that_changed_is_found(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("changed")
    (folder / "text").write_bytes(data.draw(some.binary(min_size=1, max_size=50)))
    encode(folder / "text", folder / "tokens")
    changed = bytearray((folder / "tokens").read_bytes())
    changed[data.draw(some.integers(0, len(changed) - 1))] ^= data.draw(some.integers(1, 255))
    (folder / "tokens").write_bytes(changed)
    with pytest.raises(ValueError, match="it is corrupt: checksum mismatch"):
        TokenFile(folder / "tokens")


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-1])


def without_header(path):
    (path.parent / "some.tokens.json").unlink()


def foreign_header(path):
    (path.parent / "some.tokens.json").write_text('{"format": "another"}')


def half_a_header(path):
    (path.parent / "some.tokens.json").write_text('{"format": "tiny')


def changed_header(path, **values):
    beside = path.parent / "some.tokens.json"
    beside.write_text(json.dumps(json.loads(beside.read_text()) | values))


def no_vocabulary(path):
    changed_header(path, vocabulary=None)


def another_dtype(path):
    changed_header(path, dtype="float64")


def small_vocabulary(path):
    changed_header(path, vocabulary=40)


def no_file(path):
    path.unlink()


REASONS = {
    cut_off: r"it has 1\d\d bytes, but 1\d\d were written",
    without_header: r"some\.tokens\.json not found",
    foreign_header: "some.tokens.json is not a header of 'tinydist tokens 1'",
    half_a_header: "some.tokens.json is not a header of 'tinydist tokens 1'",
    no_vocabulary: "some.tokens.json has vocabulary None",
    another_dtype: "some.tokens.json has dtype 'float64'",
    small_vocabulary: r"it has token \d+, beyond its vocabulary of 40",
    no_file: r"some\.tokens not found$",
}


@pytest.mark.parametrize("damage", REASONS, ids=lambda damage: damage.__name__)
def test_what_was_not_written_so_is_refused_with_the_reason(text, tmp_path, damage):
    path = encode(text, tmp_path / "some.tokens").path
    damage(path)
    with pytest.raises(ValueError, match=f"^TokenFile: {path}: {REASONS[damage]}"):
        TokenFile(path)


def test_an_empty_text_has_no_tokens(tmp_path):
    (tmp_path / "text").touch()
    with pytest.raises(ValueError, match="it has no tokens"):
        encode(tmp_path / "text", tmp_path / "some.tokens")


def test_the_last_tokens_are_held_out():
    training, held_out = hold_out(np.arange(100), 0.25)
    assert training.tolist() == list(range(75)) and held_out.tolist() == list(range(75, 100))
