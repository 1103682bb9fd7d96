"""Token ids in files as training data, and texts as such files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import numpy as np

from . import _c
from ._c import text_in
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from ._run import Cancel, run
from .arrays import address, ids_in
from .errors import check
from .model import Path
from .tokenizer import Tokenizer


class Data(_c.Fixed, ProcessLocal):
    """Token files, or one safetensors file of rows (`ids` [N,S], `labels` [N,S] or none), as batches that depend on
    (seed, step, rows) alone.

    seq: S; None: of a file of rows its own, else 256. vocab: ids must be below; None: below what the files say.
    shuffle: in each epoch sequences come in an order of its own; else in that of the files.
    """

    _fixed = ("seq", "vocab", "sequences", "checksum", "end")

    def __init__(
        self, paths: Path | Sequence[Path], seq: int | None = None, *, vocab: int | None = None, seed: int = 1,
        shuffle: bool = True,
    ) -> None:  # fmt: skip
        given, kept = _c.words([paths] if isinstance(paths, str) or hasattr(paths, "__fspath__") else paths, "a path")
        out = ffi.new("clv_data **")
        sizes = {"seq": seq or 0, "vocab": vocab or 0, "seed": seed, "in_order": not shuffle}
        check(lib.clv_data_open, out, given, len(kept), _c.options("clv_data_options", sizes, "data").struct)
        self._handle = Handle(out[0], lib.clv_data_close, "data")
        info = _c.filled("clv_data_info", lib.clv_data_get_info, out[0])
        self.seq, self.vocab, self.sequences = int(info.seq), int(info.vocab), int(info.sequences)
        self.checksum, self.end = int(info.checksum), None if info.end < 0 else int(info.end)
        self._tokens = int(info.tokens)

    def __len__(self) -> int:
        """Ids of all files."""
        return self._tokens

    def __repr__(self) -> str:
        closed = ", closed" if self._handle.closed else ""
        return f"<cleave.Data of {self._tokens} tokens, {self.sequences} sequences of {self.seq}{closed}>"

    def batch(self, step: int, rows: int, first: int = 0, of: int | None = None) -> tuple[Any, Any]:
        """ids and labels, i32 [rows,seq] each, of a step: rows [first, first + rows) of a batch of `of` (None: of these
        rows alone). A label of -100 counts for nothing."""
        if not 1 <= rows <= 2**40 // self.seq:
            raise ValueError(f"{rows} rows; valid: 1 and above")
        ids, labels = (np.empty((rows, self.seq), np.int32) for _ in range(2))
        out = [ffi.cast("int32_t *", address(a)) for a in (ids, labels)]
        with self._handle.use() as data:
            check(lib.clv_data_batch, data, step, first + rows if of is None else of, first, rows, *out)
        return ids, labels

    def batches(self, rows: int, start: int = 0) -> Iterator[tuple[Any, Any]]:
        """ids and labels of step `start` and of those after it, without end. A thread makes the next step's batch while
        the caller uses this step's."""
        with ThreadPoolExecutor(1) as thread:
            ahead = thread.submit(self.batch, start, rows)
            for step in count(start + 1):
                now = ahead.result()
                ahead = thread.submit(self.batch, step, rows)
                yield now


def write_tokens(path: Path, ids: Any, vocab: int, *, end: int | None = None, learned: Any = None) -> None:
    """Writes a token file: ids, each below `vocab`. end: the id behind each document. learned: of each id whether it is
    learned."""
    flat = ids_in(np.reshape(ids, (1, -1))).reshape(-1)
    marks = None if learned is None else np.ascontiguousarray(np.asarray(learned).reshape(-1) != 0).view(np.uint8)
    if marks is not None and marks.shape != flat.shape:
        raise ValueError(f"learned is of {marks.size} ids; {flat.size} are wanted")
    sizes = {"vocab": vocab, "end": -1 if end is None else end, "masked": marks is not None}
    out = ffi.new("clv_token_writer **")
    check(lib.clv_token_writer_create, out, text_in(path, "a path"),
          _c.options("clv_token_writer_options", sizes, "a token file").struct)  # fmt: skip
    writer = out[0]
    try:
        check(lib.clv_token_writer_add, writer, ffi.cast("int32_t *", address(flat)),
              ffi.NULL if marks is None else ffi.cast("uint8_t *", address(marks)), flat.size)  # fmt: skip
    except BaseException:
        lib.clv_token_writer_abort(writer)
        raise
    check(lib.clv_token_writer_commit, writer)


def tokenize(
    paths: Path | Sequence[Path], out: Path, tokenizer: Tokenizer | None = None, *, field: str | None = None,
    chat: bool = False, turn: str | None = None, end: str | None = None, special: bool = True, threads: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Texts as a token file, on all cores (or so many threads): a file is a document, of .jsonl each line is one.
    Without a tokenizer a byte is a token. field: of a line, the key of its text, or with chat of its turns, of which
    answers alone are learned; turn: how one is written, "<|im_start|>{role}\\n{content}<|im_end|>\\n". end: the token
    that ends a document ("": none). special: with what the tokenizer's template adds. What it returns says how many
    documents, tokens and so on."""
    given, kept = _c.words([paths] if isinstance(paths, str) or hasattr(paths, "__fspath__") else paths, "a path")
    texts = {"field": field, "turn": turn, "end": end}
    sizes = {"chat": bool(chat), "plain": not special, "threads": threads}
    info = ffi.new("clv_corpus_info *")
    info.size = ffi.sizeof("clv_corpus_info")
    cancel = Cancel()

    def call(pointer: Any) -> None:
        options = _c.options(
            "clv_corpus_options", {**sizes, **texts}, "a corpus", tokenizer=pointer, cancel=cancel.flag
        )
        check(lib.clv_corpus_tokenize, info, text_in(out, "a path"), given, len(kept), options.struct)

    def work() -> None:
        if tokenizer is None:
            call(None)
            return
        with tokenizer._handle.use() as pointer:
            call(pointer)

    run(work, cancel)
    found = _c.fields(info)
    return {**found, "end": None if found["end"] < 0 else found["end"]}
