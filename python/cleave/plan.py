"""Plans: what a layout costs, read off the program that would run. Nothing is allocated, no weights are read."""

from __future__ import annotations

import functools
import html
from collections.abc import Sequence
from typing import Any

from . import _c
from ._c import NULL
from ._cleave import ffi, lib
from .errors import UnsupportedError
from .graph import Graph, Value
from .machine import Machine, MachineLike, machine_in
from .mesh import MeshLike
from .nn import residual_input
from .program import Program, compile
from .rules import Rules, RulesLike, parallel


class Plan:
    """A program's collectives, memory and predicted time on a machine. In a notebook it shows them.

    ``program`` is what it is of, ``machine`` what it is priced for, ``hardware`` its name. A plan is data: a copy, and
    one that was pickled, has all but the program and the machine (None).
    """

    program: Program | None
    machine: Machine | None

    def __init__(self, program: Program, hardware: MachineLike = None) -> None:
        self.program = program
        self.machine = machine_in(hardware)
        self.hardware = self.machine.name
        self.mesh = program.mesh

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in ("hardware", "mesh", "_rows", "_memory", "_predicted")}
        return {**kept, "program": None, "machine": None}

    @functools.cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return self.machine._call(self.program._collectives)  # type: ignore[no-any-return, union-attr]

    @functools.cached_property
    def _memory(self) -> dict[str, Any]:
        return self.program.memory  # type: ignore[union-attr]

    @functools.cached_property
    def _predicted(self) -> dict[str, float]:
        with self.program._handle.use() as program:  # type: ignore[union-attr]
            found = self.machine._call(  # type: ignore[union-attr]
                lambda m: _c.filled("clv_prediction", lib.clv_program_predict, program, m)
            )
        return _c.fields(found)

    @property
    def collectives(self) -> list[dict[str, Any]]:
        """Every step in which ranks talk, in order: the rows of ``cleave plan --json``."""
        return [dict(row) for row in self._rows]

    def to_rows(self) -> list[dict[str, Any]]:
        """The same, for ``pandas.DataFrame(plan.to_rows())``."""
        return self.collectives

    @property
    def bytes(self) -> float:
        """That the collectives move: the sum of what the neediest rank receives in each."""
        return float(sum(row["bytes"] for row in self._rows))

    @property
    def memory(self) -> dict[str, Any]:
        """Bytes of the fullest rank by what they are for."""
        return dict(self._memory)

    @property
    def predicted(self) -> dict[str, float]:
        """Seconds of a run, of them in communication; flops of the rank that has most; utilisation; memory_bytes that a
        rank may take."""
        return dict(self._predicted)

    @property
    def seconds(self) -> float:
        """Predicted for a run."""
        return self.predicted["seconds"]

    @property
    def fits(self) -> bool:
        """Whether a rank's memory on the machine holds what the fullest rank needs."""
        return bool(self.memory["total"] <= self.predicted["memory_bytes"])

    def __repr__(self) -> str:
        moving = f"{len(self._rows)} collectives of {_bytes(self.bytes)}"
        held = _bytes(self.memory["total"])
        return f"<cleave.Plan on {self.mesh}, {self.hardware}: {moving}, {held} a rank, {self.seconds:.3g} s>"

    def _repr_html_(self) -> str:
        held = {
            k: v for k, v in self.memory.items() if isinstance(v, int) and v and k not in ("region", "peak_instruction")
        }
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


def _bytes(amount: float) -> str:
    return _c.printed(lib.clv_print_bytes, float(amount))


def _table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(r[c]))}</td>" for c in columns) + "</tr>" for r in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _model_graph(graph: Graph, folder: Any, mode: str, split: Rules, dtype: Any, batch: int, seq: int) -> None:
    """What ``cleave plan -m`` looks at: a training step, S tokens into the KV cache, or one token after S - 1
    others."""
    from .model import load

    if mode not in ("train", "prefill", "decode"):
        raise ValueError(f"mode '{mode}' of a model; valid: train, prefill, decode")
    opened = load(folder, mesh=graph.mesh, rules=split, dtype=dtype, config_only=True)
    with opened as model, model._handle.use() as pointer:
        info = model.info
        if mode == "decode" and info["bidirectional"]:
            raise UnsupportedError(f"a {info['family']} attends both ways and generates nothing; valid: train, prefill")
        cached = mode != "train" and not info["bidirectional"]
        sizes = {
            "batch": batch,
            "seq": 1 if mode == "decode" else seq,
            "context": seq if cached else 0,
            "last_logits": cached,
        }
        how = _c.options("clv_model_graph", sizes, "plan")
        if mode == "train":
            graph._call(lib.clv_model_train_step, pointer, how.struct, NULL)
        else:
            graph._call(lib.clv_model_inference, pointer, how.struct)


_BLOCKS = {"ffn": "gpt", "attention": "gpt", "gpt": "gpt", "llama": "llama"}  # and the form that their options are of


def _block_of(x: Value, block: str, split: Rules, sizes: dict[str, Any]) -> Value:
    """A block alone, of x [B,S,M]."""
    heads = sizes.pop("heads", 8)
    ffn, kv_heads, bias = (
        sizes.pop("ffn", None) or 4 * x.shape[-1],
        sizes.pop("kv_heads", None) or heads,
        bool(sizes.pop("bias", False)),
    )
    if sizes:
        raise TypeError(f"a block has no option '{next(iter(sizes))}'; valid: hidden, heads, kv_heads, ffn, bias")
    llama = _BLOCKS[block] == "llama"
    kept = _c.options("clv_block_options", {}, "plan")
    o = kept.struct
    o[0] = lib.clv_block_defaults(lib.CLV_BLOCK_LLAMA if llama else lib.CLV_BLOCK_GPT, heads, kv_heads, ffn)
    o.norm_bias = False
    o.attention.bias = o.attention.output_bias = o.mlp.bias = bias
    o.mlp.activation = lib.CLV_SILU if llama else lib.CLV_GELU
    if block == "ffn":
        return x.graph._value(lib.clv_parallel_mlp, x._value, split._rules, ffi.addressof(o, "mlp"))
    if block == "attention":
        return x.graph._value(lib.clv_parallel_attention, x._value, split._rules, ffi.addressof(o, "attention"))
    return x.graph._value(lib.clv_transformer_block, x._value, split._rules, o)


def _block_graph(
    graph: Graph, block: str, mode: str, split: Rules, dtype: Any, batch: int, seq: int, sizes: dict[str, Any]
) -> None:
    """What ``cleave plan --block`` looks at: its forward pass, or that and the gradients of its weights and its
    input."""
    if block not in _BLOCKS:
        raise ValueError(f"block '{block}'; valid: {', '.join(_BLOCKS)}")
    if mode not in ("forward", "grad"):
        raise ValueError(f"mode '{mode}' of a block; valid: forward, grad")
    shape = (batch, seq, sizes.pop("hidden", 256))
    x = residual_input(graph, "x", shape, split, dtype)
    y = _block_of(x, block, split, sizes)
    if mode == "grad":
        seed = residual_input(graph, "dy", shape, split, dtype)
        wrt = [*graph.parameters(), x]
        for value, d in zip(wrt, graph.gradients(y, wrt, seed)):
            graph.output(f"d.{value.name}", d)
    graph.output("y", y, x.layout)


def plan(
    model: Any = None, mode: str | None = None, *, block: str | None = None, tp: int | None = None,
    mesh: MeshLike = None, rules: RulesLike = None, sp: bool = False, batch: int = 8, seq: int = 128,
    dtype: Any = "f32", hardware: MachineLike = None,
    regather: bool = False, max_implicit_bytes: int = 0, explain: str | None = None, **sizes: Any,
) -> Plan:  # fmt: skip
    """What a layout costs: ``plan("config.json", "decode", tp=8, dtype="bf16", hardware="h100-nvlink-ib")``.

    model: its config.json, or the folder that holds it; no weights are read. mode: "train", "prefill" or "decode" of
    `batch` texts of `seq` tokens. Or block="ffn", "attention", "gpt" or "llama" alone, of hidden, heads, kv_heads, ffn
    and bias; mode "forward" or "grad". hardware: what layouts are priced by, and the time is predicted for: a
    :class:`Machine`, or its profile. regather, max_implicit_bytes and explain are those of :func:`cleave.compile`.
    """
    if (model is None) == (block is None):
        raise ValueError("give a model or a block")
    found, split = parallel(tp, mesh, rules, sp)
    graph = Graph(found)
    if block is not None:
        _block_graph(graph, block, mode or "forward", split, dtype, batch, seq, sizes)
    elif sizes:
        raise TypeError(f"a model is as its config.json says; '{next(iter(sizes))}' is of a block")
    else:
        _model_graph(graph, model, mode or "train", split, dtype, batch, seq)
    machine = machine_in(hardware)
    program = compile(graph, machine, regather=regather, max_implicit_bytes=max_implicit_bytes, explain=explain)
    return Plan(program, machine)
