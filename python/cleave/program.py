"""Programs: graphs compiled for a mesh, with every collective explicit and every byte planned."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _c
from ._c import NULL, dtype_name, shape_of
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from .errors import check, py_str
from .graph import Graph
from .machine import MachineLike, as_machine
from .mesh import Layout, Mesh

if TYPE_CHECKING:
    from .plan import Plan


class Named(NamedTuple):
    """A named tensor of a program or session."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: Layout

    @classmethod
    def _of(cls, mesh: Mesh, t: Any) -> "Named":
        return cls(
            py_str(t.name), dtype_name(t.type.dtype), shape_of(t.type.shape, t.type.rank), Layout._of(mesh, t.layout)
        )


def named(mesh: Mesh, kind: str, function: Any, owner: Any) -> list[tuple[Named, Any]]:
    """Entries by index until one without a name."""
    found: list[tuple[Named, Any]] = []
    while (t := _c.filled(kind, function, owner, len(found))).name != NULL:
        found.append((Named._of(mesh, t), t))
    return found


def _layer(op: str) -> str:
    match = re.match(r"layers\.[^.]*(?=\.)", op)
    return match.group() if match else ""


def _row(mesh: Mesh, c: Any, seconds: float) -> dict[str, Any]:
    axes = [_c.print_to_string(lib.clv_subaxis_print, c.axes[i], mesh._mesh) for i in range(c.n_axes)]
    source, target = (Layout._of(mesh, layout) for layout in (getattr(c, "from"), c.to))
    return {
        "op": py_str(c.op), "layer": _layer(py_str(c.op)), "tensor": py_str(c.tensor), "kind": py_str(c.kind),
        "axes": axes,
        "bytes": c.bytes, "seconds": seconds, "overlapped": c.completes_at > c.instruction,
        "part": f"{c.chunk + 1}/{c.n_chunks}" if c.n_chunks else None,
        "beside": py_str(c.beside) or None,
        "pass": py_str(getattr(c, "pass")), "purpose": py_str(lib.clv_collective_purpose_name(c.purpose)),
        "implicit": bool(c.implicit), "reason": py_str(c.reason),
        "statement": py_str(c.statement) or None,
        "rules": py_str(c.rules) or None, "from": str(source), "to": str(target), "cause": py_str(c.cause),
    }  # fmt: skip


class Program(_c.ReadOnly, ProcessLocal):
    """A graph compiled for a mesh (:func:`compile`). Immutable: sessions and threads may share it."""

    def __init__(self, pointer: Any, owner: Handle | None = None) -> None:
        if owner is None:
            self._handle = Handle(pointer, lib.clv_program_free, "program")
        else:  # it is borrowed
            self._handle = Handle(pointer, lambda _: None, "program", owner)
        with self._handle.shared() as program:
            mesh = ffi.new("clv_mesh *", lib.clv_program_mesh(program)[0])
            self.mesh = Mesh(_c.print_to_string(lib.clv_mesh_print, mesh))
            all_named = named(self.mesh, "clv_program_tensor", lib.clv_program_tensor_at, program)
        self._named = {kind: {n.name: n for n, t in all_named if t.kind == kind} for kind in range(3)}

    @property
    def inputs(self) -> dict[str, Named]:
        """Inputs of a run, by name."""
        return dict(self._named[lib.CLV_NAMED_INPUT])

    @property
    def states(self) -> dict[str, Named]:
        """States, which persist between runs, by name."""
        return dict(self._named[lib.CLV_NAMED_STATE])

    @property
    def outputs(self) -> dict[str, Named]:
        """Outputs of a run, by name."""
        return dict(self._named[lib.CLV_NAMED_OUTPUT])

    def _collectives(self, machine: Any) -> list[dict[str, Any]]:
        rows = []
        with self._handle.shared() as program:
            for i in range(lib.clv_program_collective_count(program)):
                c = _c.filled("clv_collective", lib.clv_program_collective, program, i)
                if py_str(c.kind) not in ("slice", "mask"):  # which move nothing
                    rows.append(
                        _row(self.mesh, c, lib.clv_program_predict_instruction(program, machine, c.instruction))
                    )
        return rows

    @property
    def collectives(self) -> list[dict[str, Any]]:
        """Every step in which ranks talk, in order, with its bytes and its cause:
        ``pandas.DataFrame(program.collectives)``. Seconds are those of no machine in particular; see :meth:`plan`."""
        return self._collectives(NULL)

    @property
    def memory(self) -> dict[str, Any]:
        """Bytes by use, maximum over ranks, and the op at the peak of live memory ("peak")."""
        with self._handle.shared() as program:
            return _c.fields(_c.filled("clv_memory", lib.clv_program_memory, program))

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """The ways to split that were considered for the ops named by compile(explain=...)."""
        with self._handle.shared() as program:
            n = lib.clv_program_candidate_count(program)
            found = [_c.filled("clv_strategy_candidate", lib.clv_program_candidate, program, i) for i in range(n)]
            return [{**_c.fields(c), "verdict": py_str(lib.clv_candidate_verdict_name(c.verdict))} for c in found]

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """What was decided of each op and change of layout, in order, with its cost and why: of
        compile(keep_decisions=True)."""
        with self._handle.shared() as program:
            n = lib.clv_program_decision_count(program)
            rows = (_c.filled("clv_partition_decision", lib.clv_program_decision, program, i) for i in range(n))
            return [_c.fields(row) for row in rows]

    def plan(self, hardware: MachineLike = None) -> "Plan":
        """A :class:`cleave.Plan` of it on a machine."""
        from .plan import Plan

        return Plan(self, hardware)

    def __str__(self) -> str:
        with self._handle.shared() as program:
            return _c.print_to_string(lib.clv_program_print, program)

    def __repr__(self) -> str:
        return f"<cleave.Program on {self.mesh}: {', '.join(self.outputs) or 'no outputs'}>"

    def _repr_html_(self) -> str:
        return self.plan()._repr_html_()

    def close(self) -> None:
        """Frees it; sessions that loaded it keep it until they end."""
        self._handle.close()


def compile(graph: Graph, machine: MachineLike = None, **options: Any) -> Program:  # noqa: A001
    """Chooses a layout for every tensor, and plans all reshards and the memory of a rank.

    machine: what layouts are priced by: a :class:`Machine`, or its profile. Options are the library's
    clv_compile_options: by_bytes, use_idle_axes, search_layouts, max_implicit_bytes, explain, greedy_by_size_limit,
    keep_decisions, overlap, comm_dtype ("bf16": the wire dtype of f32 values), reshard_after_forward ("weights", "all"
    or "none": what the backward pass gathers again instead of keeping it), recompute ("none", "selective" or "full":
    what of blocks it recomputes),
    grad_reduce_dtype (comm_dtype of sums of gradients).
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"compile takes a Graph, not {type(graph).__name__}")
    out = ffi.new("clv_program **")

    def with_machine(priced_by: Any) -> None:
        kept = _c.options("clv_compile_options", options, "compile", beside=("machine",), machine=priced_by)
        with graph._handle.exclusive() as pointer:
            check(lib.clv_compile, out, pointer, kept.struct)

    as_machine(machine)._call(with_machine)
    return Program(out[0])
