"""Plans: what a layout costs, read off the program that would run. Nothing is allocated, no weights are read."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from . import _c
from ._c import NULL, text_in
from ._cleave import ffi, lib
from ._handle import Handle
from .errors import UnsupportedError, check, text_out
from .graph import Graph
from .mesh import MeshLike
from .program import Program, compile
from .rules import Rules, RulesLike, parallel


class Plan:
    """A program's collectives, memory and predicted time on a machine. In a notebook it shows them.

    ``program`` is what it is of; ``hardware`` the machine's name.
    """

    def __init__(self, program: Program, hardware: str | None = None) -> None:
        self.program = program
        self._machine: Handle | None = None
        self.hardware = "default"
        if hardware is not None:
            out = ffi.new("clv_machine **")
            check(lib.clv_machine_open, out, text_in(hardware, "a machine's profile"))
            self._machine = Handle(out[0], lib.clv_machine_free, "machine")
            with self._machine.use() as machine:
                self.hardware = text_out(_c.filled("clv_machine_info", lib.clv_machine_describe, machine).name)

    def _with_machine(self, function: Any) -> Any:
        if self._machine is None:
            return function(NULL)
        with self._machine.use() as machine:
            return function(machine)

    @property
    def collectives(self) -> list[dict[str, Any]]:
        """Every step in which ranks talk, in order: the rows of ``cleave plan --json``."""
        return self._with_machine(self.program._collectives)  # type: ignore[no-any-return]

    def to_rows(self) -> list[dict[str, Any]]:
        """The same, for ``pandas.DataFrame(plan.to_rows())``."""
        return self.collectives

    @property
    def bytes(self) -> float:
        """That the collectives move: the sum of what the neediest rank receives in each."""
        return float(sum(row["bytes"] for row in self.collectives))

    @property
    def memory(self) -> dict[str, Any]:
        """Bytes of the fullest rank by what they are for."""
        return self.program.memory

    @property
    def predicted(self) -> dict[str, float]:
        """Seconds of a run, of them in communication; flops of the rank that has most; utilisation; memory_bytes that a rank may take."""
        with self.program._handle.use() as program:
            found = self._with_machine(lambda m: _c.filled("clv_prediction", lib.clv_program_predict, program, m))
        return _c.fields(found)

    @property
    def seconds(self) -> float:
        """Predicted for a run."""
        return self.predicted["seconds"]

    @property
    def fits(self) -> bool:
        """Whether a rank's memory on the machine holds what the fullest rank needs."""
        return bool(self.memory["total"] <= self.predicted["memory_bytes"])

    def __repr__(self) -> str:
        moving = f"{len(self.collectives)} collectives of {_bytes(self.bytes)}"
        return f"<cleave.Plan on {self.program.mesh}, {self.hardware}: {moving}, {_bytes(self.memory['total'])} a rank, {self.seconds:.3g} s>"

    def _repr_html_(self) -> str:
        held = {k: v for k, v in self.memory.items() if isinstance(v, int) and v and k not in ("region", "peak_instruction")}
        memory = [{"memory": k, "bytes a rank": _bytes(v)} for k, v in held.items()]
        rows = [{**r, "axes": ",".join(r["axes"]), "bytes": _bytes(r["bytes"]), "seconds": f"{r['seconds']:.3g}"} for r in self.collectives]
        return (
            f"<p>{html.escape(repr(self).strip('<>'))}</p>"
            + _table(rows, ("op", "kind", "axes", "pass", "bytes", "seconds", "cause"))
            + _table(memory, ("memory", "bytes a rank"))
        )


def _bytes(amount: float) -> str:
    return _c.printed(lib.clv_print_bytes, float(amount))


def _table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(r[c]))}</td>" for c in columns) + "</tr>" for r in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _model_graph(graph: Graph, folder: Any, mode: str, split: Rules, dtype: Any, batch: int, seq: int) -> None:
    """What ``cleave plan -m`` looks at: a training step, S tokens into the KV cache, or one token after S - 1 others."""
    from .model import load

    if mode not in ("train", "prefill", "decode"):
        raise ValueError(f"mode '{mode}' of a model; valid: train, prefill, decode")
    with load(folder, mesh=graph.mesh, rules=split, dtype=dtype, config_only=True) as model, model._handle.use() as pointer:
        info = model.info
        if mode == "decode" and info["bidirectional"]:
            raise UnsupportedError(f"a {info['family']} attends both ways and generates nothing; valid: train, prefill")
        cached = mode != "train" and not info["bidirectional"]
        sizes = {"batch": batch, "seq": 1 if mode == "decode" else seq, "context": seq if cached else 0, "last_logits": cached}
        how = _c.options("clv_model_graph", sizes, "plan")
        if mode == "train":
            graph._call(lib.clv_model_train_step, pointer, how.struct, NULL)
        else:
            graph._call(lib.clv_model_inference, pointer, how.struct)


def plan(
    model: Any, mode: str = "train", *, tp: int | None = None, mesh: MeshLike = None, rules: RulesLike = None, sp: bool = False,
    batch: int = 8, seq: int = 128, dtype: Any = "f32", hardware: str | None = None, **options: Any,
) -> Plan:  # fmt: skip
    """What a layout of a model costs: ``plan("config.json", "decode", tp=8, dtype="bf16", hardware="h100-nvlink-ib")``.

    model: its config.json, or the folder that holds it; no weights are read. mode: "train", "prefill" or "decode" of texts of `seq` tokens,
    `batch` of them. hardware: the path of a profile, or the name of one that the library has (:func:`machines`). Options are
    those of :func:`cleave.compile`.
    """
    found, split = parallel(tp, mesh, rules, sp)
    graph = Graph(found)
    _model_graph(graph, model, mode, split, dtype, batch, seq)
    return Plan(compile(graph, **options), hardware)


def machines() -> list[str]:
    """The names of the profiles of machines that the library has."""
    names: list[str] = []
    while (name := lib.clv_machine_shipped(len(names))) != NULL:
        names.append(text_out(name))
    return names
