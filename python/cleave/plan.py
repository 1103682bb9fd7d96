"""Plans: costs of a layout, from the program that would run. Nothing is allocated and no weights are read."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable, Sequence
from typing import Any

from . import _c
from ._c import NULL, print_to_string, c_str, whole
from ._cleave import ffi, lib
from .errors import check, py_str
from .machine import Machine, MachineLike, as_machine
from .mesh import Mesh, MeshLike
from .program import Program
from .rules import Rules, RulesLike, parallel


_KEPT = ("hardware", "mesh", "found", "_rows", "_memory", "_predicted", "_parts")


class Plan:
    """A program's collectives, memory and predicted time on a machine. In a notebook it shows them.

    ``program`` is the program, ``machine`` the machine of the costs, ``hardware`` its name, ``rules`` those of the
    layout, for :func:`cleave.load` and others. ``found``: what rules="auto" found, in the presets' words ("like"), with
    the runner-up ("next"), the best preset, and of each name its axes and the best other ones; else None. Copies and
    pickles of a plan have all but program, machine and rules (None).
    """

    program: Program | None
    machine: Machine | None

    def __init__(
        self, program: Program, hardware: MachineLike = None, _call: Callable[[Any, Any], None] | None = None,
        rules: Rules | None = None, found: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.program = program
        self._call = _call  # a function of the library, with the options that the plan was made by
        self.machine = as_machine(hardware)
        self.hardware = self.machine.name
        self.mesh = program.mesh
        self.rules = rules
        self.found = found

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in _KEPT}
        return {**kept, "program": None, "machine": None, "_call": None, "rules": None}

    @functools.cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return self.machine._call(self.program._collectives)  # type: ignore[no-any-return, union-attr]

    @functools.cached_property
    def _memory(self) -> dict[str, Any]:
        return self.program.memory  # type: ignore[union-attr]

    @functools.cached_property
    def _predicted(self) -> dict[str, float]:
        with self.program._handle.shared() as program:  # type: ignore[union-attr]
            found = self.machine._call(  # type: ignore[union-attr]
                lambda m: _c.filled("clv_prediction", lib.clv_program_predict, program, m)
            )
        return _c.fields(found)

    @functools.cached_property
    def _parts(self) -> dict[str, dict[str, float]]:
        with self.program._handle.shared() as program:  # type: ignore[union-attr]
            found = self.machine._call(  # type: ignore[union-attr]
                lambda m: _c.filled("clv_prediction_parts", lib.clv_program_predict_parts, program, m)
            )
        parts = [py_str(lib.clv_model_part_name(i)) for i in range(lib.CLV_PART_COUNT)]
        purposes = [py_str(lib.clv_collective_purpose_name(i)) for i in range(lib.CLV_PURPOSE_COUNT)]
        by_purpose = ("communication", "overlapped", "bytes", "collectives")
        return {
            "ops": dict(zip(parts, found.ops)),
            **{key: dict(zip(purposes, getattr(found, key))) for key in by_purpose},
        }

    @property
    def collectives(self) -> list[dict[str, Any]]:
        """Every step in which ranks talk, in order: the rows of ``cleave plan --json``."""
        return [dict(row) for row in self._rows]

    def to_rows(self) -> list[dict[str, Any]]:
        """The same, for ``pandas.DataFrame(plan.to_rows())``."""
        return self.collectives

    @property
    def bytes(self) -> float:
        """Bytes of the collectives: for each the maximum that a rank receives, added up."""
        return float(sum(row["bytes"] for row in self._rows))

    @property
    def memory(self) -> dict[str, Any]:
        """Bytes by use, maximum over ranks."""
        return dict(self._memory)

    @property
    def predicted(self) -> dict[str, float]:
        """Seconds of a run, of them in communication; flops of the rank that has most, and its utilisation (HFU);
        memory_bytes that a rank may take; overlapped: seconds of communication beside ops, in none of the others;
        model_flops, each once, and model_utilisation (MFU)."""
        return dict(self._predicted)

    @property
    def parts(self) -> dict[str, dict[str, float]]:
        """Where the seconds go: "ops" of attention, feed-forward, rest and optimizer, and "communication" by what
        collectives are for (their "purpose"), which add up to all; and "overlapped" seconds, "bytes" and the number of
        "collectives" by purpose."""
        return {key: dict(values) for key, values in self._parts.items()}

    def suggestions(self) -> list[dict[str, Any]]:
        """What would make it smaller: one option changed, and the plan made again; what needs least first. "option" and
        "value" are arguments of :func:`plan` ("mesh", "rules", "batch", "dtype", "reshard_after_forward" or
        "recompute"), "memory" is as :attr:`memory`.
        """
        if self._call is None:
            raise ValueError("suggestions: this plan does not know its options; valid: one that cleave.plan returned")
        out = ffi.new("clv_plan_suggestions **")
        self._call(lib.clv_plan_find_suggestions, out)
        found = ffi.gc(out[0], lib.clv_plan_suggestions_free)
        rows = []
        for i in range(lib.clv_plan_suggestion_count(found)):
            row = _c.filled("clv_plan_suggestion", lib.clv_plan_suggestion_at, found, i)
            option, value = (py_str(field) for field in (row.option, row.value))
            typed: Any = int(value) if option == "batch" else value or "all"  # of reshard_after_forward
            rows.append({"option": option, "value": typed, "memory": _c.fields(row.memory)})
        return rows

    def faster_mesh_order(self) -> tuple[Mesh, float]:
        """The order of mesh axes that takes the least time on the machine, and its seconds: ranks are row-major, so the
        last axes stay inside hosts. The mesh itself if no other order is faster."""
        if self._call is None:
            raise ValueError("faster_mesh_order: this plan does not know its options; valid: one of cleave.plan")
        mesh, seconds = ffi.new("clv_mesh *"), ffi.new("double *")
        self._call(lambda out, how, err: lib.clv_plan_find_axis_order(out, seconds, how, err), mesh)
        return Mesh(print_to_string(lib.clv_mesh_print, mesh)), float(seconds[0])

    @property
    def seconds(self) -> float:
        """Predicted for a run."""
        return self.predicted["seconds"]

    @property
    def fits(self) -> bool:
        """Whether the maximum memory of a rank fits on the machine."""
        return bool(self.memory["total"] <= self.predicted["memory_bytes"])

    def __repr__(self) -> str:
        moving = f"{len(self._rows)} collectives of {_bytes(self.bytes)}"
        held = _bytes(self.memory["total"])
        return f"<cleave.Plan on {self.mesh}, {self.hardware}: {moving}, {held} a rank, {self.seconds:.3g} s>"

    def _repr_html_(self) -> str:
        beside = ("region", "peak_instruction", "checkpoint_copy", "stage")
        held = {k: v for k, v in self.memory.items() if isinstance(v, int) and v and k not in beside}
        memory = [{"memory": k, "bytes a rank": _bytes(v)} for k, v in held.items()]
        rows = [
            {**r, "axes": ",".join(r["axes"]), "bytes": _bytes(r["bytes"]), "seconds": f"{r['seconds']:.3g}"}
            for r in self._rows
        ]
        return (
            f"<p>{html.escape(repr(self).strip('<>'))}</p>"
            + _table(rows, ("op", "kind", "axes", "pass", "bytes", "seconds", "cause"))
            + _table(memory, ("memory", "bytes a rank"))
        )


def _found(best: Any) -> dict[str, Any]:
    texts = {name: py_str(getattr(best, name)) for name in ("like", "next", "preset")}
    numbers = {name: getattr(best, name) for name in ("seconds", "memory", "fits", "next_seconds", "preset_seconds")}
    rows = [best.rule[i] for i in range(best.n_rules)]
    names = {
        py_str(r.name): {"axes": py_str(r.axes), "instead": py_str(r.instead), "instead_seconds": r.instead_seconds}
        for r in rows
    }
    return {**texts, **numbers, "priced": best.priced, "rules": names}


def _bytes(amount: float) -> str:
    return _c.print_to_string(lib.clv_print_bytes, float(amount))


def _table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(r[c]))}</td>" for c in columns) + "</tr>" for r in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def plan(
    model: Any = None, mode: str | None = None, *, block: str | None = None, tp: int | None = None,
    mesh: MeshLike = None, rules: RulesLike = None, sp: bool = False, batch: int | None = None, seq: int | None = None,
    dtype: Any = "f32", hardware: MachineLike = None, comm_dtype: Any = "f32",
    reshard_after_forward: str = "weights", overlap: bool = False, max_implicit_bytes: int = 0,
    explain: str | None = None,
    keep_decisions: bool = False, recompute: str = "none", lora: Any = None, accumulate: int = 0, no_sync: bool = False,
    dropout: float = 0.0, attention_dropout: float = 0.0, grad_reduce_dtype: Any = None,
    quant: str = "none", memory_limit: int = 0, **sizes: Any,
) -> Plan:  # fmt: skip
    """What a layout costs: ``plan("config.json", "decode", tp=8, dtype="bf16", hardware="h100-nvlink-ib")``.

    model: its config.json, or the folder that holds it; no weights are read. mode: "train" (default), "prefill" or
    "decode" of `batch` (8) texts of `seq` (128) tokens. Or block="ffn", "attention", "gpt" or "llama" alone, of hidden
    (256), heads (8), kv_heads, ffn and bias; mode "forward" (unless told) or "grad". hardware: what layouts are priced
    by, and the time is predicted for: a :class:`Machine`, or its profile. comm_dtype, reshard_after_forward, overlap,
    max_implicit_bytes, explain, keep_decisions and recompute are those of :func:`cleave.compile`, lora, quant
    and grad_reduce_dtype those of :func:`cleave.load`, accumulate, no_sync, dropout and attention_dropout those of
    :class:`Trainer`. rules="auto" finds the fastest rules that a search finds (``cleave plan --rules auto``), whose
    plan needs at most memory_limit bytes of a rank (0: the machine's).
    Refuses what clv_plan_compile and ``cleave plan`` refuse.
    """
    searched = isinstance(rules, str) and rules == "auto"
    if memory_limit and not searched:
        raise ValueError("memory_limit has no effect without rules='auto'")
    on, split = parallel(tp, mesh, () if searched else rules, sp)
    given = {
        "model": None if model is None else c_str(model, "a model"), "block": block, "mode": mode, "batch": batch,
        "seq": seq, "sp": sp, "dtype": dtype, "comm_dtype": comm_dtype, "overlap": overlap,
        "reshard_after_forward": reshard_after_forward,
        "max_implicit_bytes": max_implicit_bytes, "explain": explain,
        "keep_decisions": keep_decisions, "recompute": recompute, "accumulate": accumulate, "no_sync": no_sync,
        "dropout": dropout, "attention_dropout": attention_dropout, "quant": quant,
        **_c.summed_in(grad_reduce_dtype), **sizes,
    }  # fmt: skip
    for name in ("batch", "seq", "hidden", "heads"):
        if given.get(name) is not None and whole(given[name], name) == 0:  # to C it is: not given
            raise ValueError(f"{name} is 0; valid: at least 1")
    machine, adapters = as_machine(hardware), _c.lora(lora)
    out = ffi.new("clv_program **")

    def call(function: Any, result: Any, stated: bool = True) -> None:
        def with_machine(priced_by: Any) -> None:
            kept = _c.options(
                "clv_plan_options", given, "plan", beside=("tp", "mesh", "rules", "hardware"), mesh=on._mesh,
                rules=split._rules if stated and not sp else NULL, machine=priced_by,
                lora=NULL if adapters is None else adapters.struct,
            )  # fmt: skip
            check(function, result, kept.struct)

        machine._call(with_machine)

    found = None
    if searched:
        limit, best = whole(memory_limit, "memory_limit: bytes"), ffi.new("clv_found_rules *")
        best.size = ffi.sizeof("clv_found_rules")
        call(lambda to, how, err: lib.clv_plan_find_rules(to, how, limit, err), best, stated=False)
        split._rules[0] = best.rules
        found = _found(best)
    call(lib.clv_plan_compile, out)
    return Plan(Program(out[0]), machine, call, split, found)
