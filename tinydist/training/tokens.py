"""Memory-mapped token files: 10^9 tokens take no more memory than one.

    books.tokens        the tokens, one after another: uint8, uint16 or uint32, the smallest that holds the vocabulary
    books.tokens.json   count, dtype, vocabulary, tokenizer, and a checksum (CRC-32); written last

A token is a byte of the text, or what a tokenizer of the package `tokenizers` makes of it. Both files are written
under other names, and renamed when they are whole.
"""

import json
import os
import zlib
from pathlib import Path

import numpy as np

from ..checkpoint.files import checksum_of
from ..rules import part, stated, validate

FORMAT, MIB = "tinydist tokens 1", 2**20
DTYPES = "uint8", "uint16", "uint32"
SAID = {"count": int, "vocabulary": int, "dtype": str, "checksum": str}


@validate(text=str | os.PathLike, to=str | os.PathLike, tokenizer=str | os.PathLike)
def encode(text, to, tokenizer=None):
    """The file ``text`` as a file of tokens, ``to``: a ``TokenFile``. A piece of 1 MiB is in memory at a time.

    ``tokenizer``: a JSON file that the package `tokenizers` reads; None: bytes. Pieces end where a line ends.
    """
    ids_of, vocabulary = encoder(tokenizer)
    dtype, count, checksum, draft = np.min_scalar_type(vocabulary - 1), 0, 0, Path(f"{to}.part")
    with open(text, "rb") as source, open(draft, "wb") as file:
        while piece := source.read(MIB) + source.readline():
            ids = np.asarray(ids_of(piece), dtype=dtype)
            file.write(ids)
            count, checksum = count + len(ids), zlib.crc32(ids, checksum)
    about = {"format": FORMAT, "count": count, "dtype": dtype.name, "vocabulary": vocabulary}
    about["checksum"] = f"{checksum:08x}"  # as checksum_of says it
    about["tokenizer"] = tokenizer and Path(tokenizer).name
    path_of_header(to).unlink(missing_ok=True)  # from here on no header speaks of other tokens
    draft.replace(to)
    draft.write_text(json.dumps(about, indent=1))
    draft.replace(path_of_header(to))
    return TokenFile(to)


def encoder(tokenizer):
    """What makes token ids of a piece of text in bytes; and how many ids there are."""
    if tokenizer is None:
        return lambda piece: np.frombuffer(piece, np.uint8), 256
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as missing:
        raise type(missing)("encode: a tokenizer's file needs the package tokenizers: pip install tokenizers") from None
    if not Path(tokenizer).is_file():
        raise FileNotFoundError(f"encode: tokenizer {tokenizer} not found")
    reads = Tokenizer.from_file(str(tokenizer))
    return lambda piece: reads.encode(piece.decode(), add_special_tokens=False).ids, reads.get_vocab_size()


def path_of_header(path):
    return Path(f"{path}.json")


@validate(path=str | os.PathLike)
class TokenFile:
    """The tokens in a file: ``len(tokens)``, and ``tokens[a:b]``, of which only the requested range is read.

    Refuses, with ``ValueError``, what no ``encode`` has written, or what has changed since. The checksum is compared
    once, at 1 GB/s.
    """

    def __init__(self, path):
        self.path = Path(path)
        about = header(self.path)
        self.vocabulary, self.tokenizer = about["vocabulary"], about.get("tokenizer")
        found, written = self.path.stat().st_size, about["count"] * np.dtype(about["dtype"]).itemsize
        self._require(found == written, f"it has {found:,} bytes, but {written:,} were written")
        self._require(found, "it has no tokens")
        self.tokens = np.memmap(self.path, about["dtype"], "r")
        self.checksum = about["checksum"]
        self._require(checksum_of(self.path) == self.checksum, "it is corrupt: checksum mismatch")
        most = int(self.tokens.max())
        self._require(most < self.vocabulary, f"it has token {most:,}, beyond its vocabulary of {self.vocabulary:,}")

    def _require(self, holds, reason):
        if not holds:
            raise ValueError(f"TokenFile: {self.path}: {reason}")

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, part):
        return self.tokens[part]

    def __repr__(self):
        return f"<{len(self):,} tokens of {self.vocabulary:,} in {self.path}>"


def header(path):
    """What its JSON file says."""
    beside = path_of_header(path)
    for each in (path, beside):
        if not each.is_file():
            raise ValueError(f"TokenFile: {path}: {each.name} not found")
    try:
        about = json.loads(beside.read_bytes())
    except ValueError:
        about = None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"TokenFile: {path}: {beside.name} is not a header of {FORMAT!r}")
    for key, kind in SAID.items():
        if not isinstance(about.get(key), kind) or (key == "dtype" and about[key] not in DTYPES):
            raise ValueError(f"TokenFile: {path}: {beside.name} has {key} {about.get(key)!r}")
    return about


some_tokens = stated(
    "a TokenFile, or a NumPy array of integers [N]",
    lambda given: (
        isinstance(given, TokenFile) or (isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.kind in "iu")
    ),
)


@validate(tokens=some_tokens, share=part)
def hold_out(tokens, share=0.1):
    """The tokens to train on, and the last ``share`` of them, for ``evaluate``."""
    cut = round(len(tokens) * (1 - share))
    return tokens[:cut], tokens[cut:]
