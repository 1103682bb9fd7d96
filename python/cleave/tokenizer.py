"""Tokenizers: encode text to token ids and decode them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._c import c_str, whole
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from .errors import check


class Tokenizer(ProcessLocal):
    """A folder's tokenizer.json or vocab.txt: ``Tokenizer("folder")``; ``model.tokenizer`` is that of a model."""

    def __init__(self, path: Any) -> None:
        out = ffi.new("clv_tokenizer **")
        check(lib.clv_tokenizer_open, out, c_str(path, "a path"))
        self._handle = Handle(out[0], lib.clv_tokenizer_free, "tokenizer")

    @classmethod
    def _borrowed(cls, pointer: Any, owner: Handle) -> "Tokenizer":
        made = cls.__new__(cls)
        made._handle = Handle(pointer, lambda _: None, "tokenizer", owner)
        return made

    @classmethod
    def of_bytes(cls) -> "Tokenizer":
        """The byte tokenizer: ids 0 to 255 are the bytes of a text."""
        out = ffi.new("clv_tokenizer **")
        check(lib.clv_tokenizer_new_bytes, out)
        made = cls.__new__(cls)
        made._handle = Handle(out[0], lib.clv_tokenizer_free, "tokenizer")
        return made

    def __len__(self) -> int:
        """Vocabulary: one more than the largest id."""
        with self._handle.shared() as tokenizer:
            return int(lib.clv_tokenizer_vocab_size(tokenizer))

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Ids of a text; special: with the special tokens of the template, such as a beginning-of-text token."""
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"a text is a str, not {type(text).__name__}")
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        ids, n = ffi.new("int64_t **"), ffi.new("int64_t *")
        with self._handle.shared() as tokenizer:
            check(lib.clv_tokenizer_encode, tokenizer, data, len(data), bool(special), ids, n)
        try:
            return list(ffi.unpack(ids[0], n[0])) if n[0] else []
        finally:
            lib.free(ids[0])

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, without special tokens; invalid UTF-8 becomes U+FFFD."""
        numbers = [whole(i, "an id") for i in ids]
        given = ffi.new("int64_t[]", numbers or 1)
        text, size = ffi.new("char **"), ffi.new("size_t *")
        with self._handle.shared() as tokenizer:
            check(lib.clv_tokenizer_decode, tokenizer, given, len(numbers), text, size)
        try:
            return str(ffi.unpack(text[0], size[0]).decode("utf-8", "replace"))
        finally:
            lib.free(text[0])
