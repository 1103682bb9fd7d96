"""Training data: batches from token files, texts and files of rows; writing token files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import numpy as np

from . import _c
from ._c import c_str
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from ._interruptible import Cancel, run
from .arrays import address, as_ids
from .errors import check
from .model import Path
from .tokenizer import Tokenizer


class Data(_c.ReadOnly, ProcessLocal):
    """Training data: token files and texts (a byte a token), or one safetensors file of rows (`ids` [N,S], optional
    `labels` [N,S]), as batches that depend on (seed, step, rows) alone.

    seq: S; None: that of the file of rows, else 256. vocab: ids must be below; None: as the files say. shuffle: a new
    order in each epoch; False: file order.
    """

    _read_only = ("seq", "vocab", "sequences", "checksum", "end_id")

    def __init__(
        self, paths: Path | Sequence[Path], seq: int | None = None, *, vocab: int | None = None, seed: int = 1,
        shuffle: bool = True,
    ) -> None:  # fmt: skip
        given, kept = _c.c_strs([paths] if isinstance(paths, str) or hasattr(paths, "__fspath__") else paths, "a path")
        out = ffi.new("clv_data **")
        sizes = {"seq": seq or 0, "vocab": vocab or 0, "seed": seed, "sequential": not shuffle}
        check(lib.clv_data_open, out, given, len(kept), _c.options("clv_data_options", sizes, "data").struct)
        self._handle = Handle(out[0], lib.clv_data_close, "data")
        info = _c.filled("clv_data_info", lib.clv_data_get_info, out[0])
        self.seq, self.vocab, self.sequences = int(info.seq), int(info.vocab), int(info.sequences)
        self.checksum, self.end_id = int(info.checksum), None if info.end_id < 0 else int(info.end_id)
        self._tokens = int(info.tokens)

    def __len__(self) -> int:
        """Ids of all files."""
        return self._tokens

    def __repr__(self) -> str:
        closed = ", closed" if self._handle.closed else ""
        return f"<cleave.Data of {self._tokens} tokens, {self.sequences} sequences of {self.seq}{closed}>"

    def batch(self, step: int, rows: int, first: int = 0, of: int | None = None) -> tuple[Any, Any]:
        """ids and labels of a step, i32 [rows,seq] each: rows [first, first + rows) of a batch of `of` rows (None:
        first + rows). Labels of -100 are ignored."""
        if not 1 <= rows <= 2**40 // self.seq:
            raise ValueError(f"{rows} rows; valid: 1 and above")
        ids, labels = (np.empty((rows, self.seq), np.int32) for _ in range(2))
        out = [ffi.cast("int32_t *", address(a)) for a in (ids, labels)]
        with self._handle.shared() as data:
            check(lib.clv_data_batch, data, step, first + rows if of is None else of, first, rows, *out, ffi.NULL)
        return ids, labels

    def batches(self, rows: int, start: int = 0) -> Iterator[tuple[Any, Any]]:
        """ids and labels of step `start` and of those after it, without end. A thread makes the next step's batch
        while the caller uses this step's."""
        with ThreadPoolExecutor(1) as thread:
            ahead = thread.submit(self.batch, start, rows)
            for step in count(start + 1):
                now = ahead.result()
                ahead = thread.submit(self.batch, step, rows)
                yield now


def write_tokens(path: Path, ids: Any, vocab: int, *, end_id: int | None = None, loss_mask: Any = None) -> None:
    """Writes a token file of ids, each below `vocab`. end_id: the id that ends each document. loss_mask: for each id
    whether it is a label; None: all are."""
    flat = as_ids(np.reshape(ids, (1, -1))).reshape(-1)
    mask = None if loss_mask is None else np.ascontiguousarray(np.asarray(loss_mask).reshape(-1) != 0).view(np.uint8)
    if mask is not None and mask.shape != flat.shape:
        raise ValueError(f"loss_mask has {mask.size} elements; valid: {flat.size}, one an id")
    sizes = {"vocab": vocab, "end_id": -1 if end_id is None else end_id, "has_loss_mask": mask is not None}
    out = ffi.new("clv_token_writer **")
    check(lib.clv_token_writer_create, out, c_str(path, "a path"),
          _c.options("clv_token_writer_options", sizes, "a token file").struct)  # fmt: skip
    writer = out[0]
    try:
        check(lib.clv_token_writer_add, writer, ffi.cast("int32_t *", address(flat)),
              ffi.NULL if mask is None else ffi.cast("uint8_t *", address(mask)), flat.size)  # fmt: skip
    except BaseException:
        lib.clv_token_writer_abort(writer)
        raise
    check(lib.clv_token_writer_commit, writer)


def tokenize(
    paths: Path | Sequence[Path], out: Path, tokenizer: Tokenizer | None = None, *, field: str | None = None,
    chat: bool = False, turn_template: str | None = None, end_token: str | None = None, special: bool = True,
    threads: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Tokenizes texts into a token file, on all cores (or `threads`). A file is a document, in JSON lines each line.
    Without a tokenizer a byte is a token. field: the key of a line's text, with chat that of its turns, of which only
    the assistant's are labels. turn_template: default "<|im_start|>{role}\\n{content}<|im_end|>\\n". end_token: the
    token that ends a document ("": none). special: with the special tokens of the tokenizer's template. Returns the
    counts of clv_corpus_info: documents, tokens, loss_tokens ..."""
    given, kept = _c.c_strs([paths] if isinstance(paths, str) or hasattr(paths, "__fspath__") else paths, "a path")
    texts = {"field": field, "turn_template": turn_template, "end_token": end_token}
    sizes = {"chat": bool(chat), "no_special": not special, "threads": threads}
    info = ffi.new("clv_corpus_info *")
    info.size = ffi.sizeof("clv_corpus_info")
    cancel = Cancel()

    def call(pointer: Any) -> None:
        options = _c.options(
            "clv_corpus_options", {**sizes, **texts}, "a corpus", tokenizer=pointer, cancel=cancel.flag
        )
        check(lib.clv_corpus_tokenize, info, c_str(out, "a path"), given, len(kept), options.struct)

    def work() -> None:
        if tokenizer is None:
            call(None)
            return
        with tokenizer._handle.shared() as pointer:
            call(pointer)

    run(work, cancel)
    found = _c.fields(info)
    return {**found, "end_id": None if found["end_id"] < 0 else found["end_id"]}
