"""Summaries of traces, which record what each rank did and when."""

from __future__ import annotations

import itertools
from typing import Any

from . import _c
from ._c import c_str
from ._cleave import ffi, lib
from .errors import check
from .model import Path


def read_trace(path: Path) -> dict[str, Any]:
    """Sums up a trace written by ``Session.trace``, ``Trainer.trace`` or ``--trace-out``: mesh, ranks, steps, seconds
    per step; by part of the model ("attention", "feed-forward", "rest") the time of a step in ops (compute) and in
    collectives (moving; waiting, of which stealing), and the prediction; by kind of op and collective ("ops") how often
    a step runs it, and its time. As a table: ``pandas.DataFrame(cleave.read_trace(path)["parts"])``."""
    out = ffi.new("clv_trace_report **")
    check(lib.clv_trace_read, out, c_str(path, "a path"))
    try:
        found = _c.fields(_c.filled("clv_trace_info", lib.clv_trace_report_get_info, out[0]))
        return {
            **found,
            "parts": _rows("clv_trace_part", lib.clv_trace_report_part, out[0]),
            "ops": _rows("clv_trace_op_kind", lib.clv_trace_report_op_kind, out[0]),
        }
    finally:
        lib.clv_trace_report_free(out[0])


def _rows(kind: str, function: Any, report: Any) -> list[dict[str, Any]]:
    """Rows until one without a name."""
    rows = (_c.filled(kind, function, report, i) for i in itertools.count())
    return [_c.fields(row) for row in itertools.takewhile(lambda row: row.name != ffi.NULL, rows)]
