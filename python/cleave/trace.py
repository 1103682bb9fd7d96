"""Traces: when each rank did what, as a file that Perfetto shows, and where the time went."""

from __future__ import annotations

import itertools
from typing import Any

from . import _c
from ._c import text_in
from ._cleave import ffi, lib
from .errors import check
from .model import Path


def read_trace(path: Path) -> dict[str, Any]:
    """Where the time went of a trace that ``Session.trace``, ``Trainer.trace`` or ``--trace-out`` wrote: mesh, ranks,
    steps, seconds of a step, and by part of the model ("attention", "feed-forward", "rest") what a step took of it in
    ops (compute), in collectives (moving, and waiting for others), and what was predicted. A table of it:
    ``pandas.DataFrame(cleave.read_trace(path)["parts"])``."""
    out = ffi.new("clv_trace_report **")
    check(lib.clv_trace_read, out, text_in(path, "a path"))
    try:
        found = _c.fields(_c.filled("clv_trace_info", lib.clv_trace_describe, out[0]))
        parts: list[dict[str, Any]] = []
        for i in itertools.count():
            part = _c.filled("clv_trace_part", lib.clv_trace_report_part, out[0], i)
            if part.name == ffi.NULL:
                return {**found, "parts": parts}
            parts.append(_c.fields(part))
    finally:
        lib.clv_trace_report_free(out[0])
    raise AssertionError  # count() has no end
