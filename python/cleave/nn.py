"""Layers under Megatron-LM's names. Each takes the rules that say how it is split (a :class:`cleave.Rules`, a preset's
name, or None: not at all) and makes its parameters, named by the graph's scope. Options are those of the library's
structs of the same name.
"""

from __future__ import annotations

from typing import Any

from . import _c
from ._c import NULL, dtype_code, c_str
from ._cleave import ffi, lib
from .graph import Graph, Value, _graph_of
from .rules import Rules, RulesLike

__all__ = [
    "column_parallel_linear", "layer_norm", "learned_positions", "parallel_attention", "parallel_experts",
    "parallel_mlp", "residual_input", "rms_norm", "row_parallel_linear", "transformer_block",
    "vocab_parallel_cross_entropy", "vocab_parallel_embedding", "vocab_parallel_logits",
]  # fmt: skip


def _rules(graph: Graph, rules: RulesLike) -> Any:
    return NULL if rules is None else Rules(graph.mesh, rules)._rules


def _optional(graph: Graph, value: Value | None) -> Any:
    return graph._optional(value)


def _ids(graph: Graph, options: dict[str, Any]) -> dict[str, Any]:
    """With values of the graph as the library knows them."""
    nested = {k: _ids(graph, v) for k, v in options.items() if isinstance(v, dict)}
    values = {k: graph._id(v) for k, v in options.items() if isinstance(v, Value)}
    return {**options, **nested, **values}


def _with_x(
    function: Any, kind: str, what: str, x: Value, rules: RulesLike, options: dict[str, Any], *arguments: Any
) -> Value:
    g = _graph_of(x)
    kept = _c.options(kind, _ids(g, options), what)
    return g._value(function, g._id(x), *arguments, _rules(g, rules), kept.struct)


def residual_input(graph: Graph, name: str, shape: Any, rules: RulesLike = None, dtype: Any = "f32") -> Value:
    """An input [batch, ..., seq, embed] laid out as layers take it."""
    shape = _c.as_shape(shape)
    return graph._value(
        lib.clv_residual_input, c_str(name), dtype_code(dtype), len(shape), list(shape), _rules(graph, rules)
    )


def column_parallel_linear(
    x: Value, features: int, rules: RulesLike = None, *, axis: str | None = None, **options: Any
) -> Value:
    """y = x W + b, W [M,F] split by columns. axis: the name of the split features. Options: name, bias, gather_output,
    init."""
    return _with_x(
        lib.clv_column_parallel_linear,
        "clv_linear_options",
        "column_parallel_linear",
        x,
        rules,
        {**options, "features": axis},
        _c.whole(features, "features"),
    )


def row_parallel_linear(
    x: Value, features: int, rules: RulesLike = None, *, axis: str | None = None, **options: Any
) -> Value:
    """y = x W + b, W [F,M] split by rows. axis: the name of the split features. Options: name, bias, input_is_parallel,
    init."""
    return _with_x(
        lib.clv_row_parallel_linear,
        "clv_linear_options",
        "row_parallel_linear",
        x,
        rules,
        {**options, "features": axis},
        _c.whole(features, "features"),
    )


def vocab_parallel_embedding(
    ids: Value,
    vocabulary: int,
    width: int,
    rules: RulesLike = None,
    *,
    name: str = "embedding",
    dtype: Any = "f32",
    init: Any = "zeros",
) -> Value:
    """Rows of a table [V,M] split over V, state "<name>.weight"."""
    g = _graph_of(ids)
    sizes = (_c.whole(vocabulary, "vocabulary"), _c.whole(width, "width"))
    made = (*sizes, dtype_code(dtype), _rules(g, rules), ffi.new("char[]", c_str(name)), _c.as_init(init))
    return g._value(lib.clv_vocab_parallel_embedding, g._id(ids), *made)


def learned_positions(
    x: Value,
    positions: int,
    rules: RulesLike = None,
    *,
    offset: Value | None = None,
    name: str = "positions",
    init: Any = "zeros",
) -> Value:
    """x [B,S,M] + table[offset + s], table [positions,M]."""
    g = _graph_of(x)
    made = (_c.whole(positions, "positions"), _rules(g, rules), ffi.new("char[]", c_str(name)), _c.as_init(init))
    return g._value(lib.clv_learned_positions, g._id(x), g._optional(offset), *made)


def vocab_parallel_logits(x: Value, table: Value, rules: RulesLike = None) -> Value:
    """x [...,M] table' of a model whose output projection is its embedding's table [V,M]."""
    g = _graph_of(x)
    return g._value(lib.clv_vocab_parallel_logits, g._id(x), g._id(table), _rules(g, rules))


def vocab_parallel_cross_entropy(logits: Value, labels: Value, ignored: int = -100) -> Value:
    """The mean over labels that are not ignored: a scalar."""
    g = _graph_of(logits)
    return g._value(lib.clv_vocab_parallel_cross_entropy, g._id(logits), g._id(labels), _c.whole(ignored, "ignored"))


def rms_norm(x: Value, rules: RulesLike = None, *, name: str = "norm", eps: float = 1e-5) -> Value:
    """With its parameter "<name>.weight"."""
    g = _graph_of(x)
    called = ffi.new("char[]", c_str(name))
    return g._value(lib.clv_parallel_rms_norm, g._id(x), _rules(g, rules), called, _c.real(eps, "eps"))


def layer_norm(x: Value, rules: RulesLike = None, *, name: str = "norm", eps: float = 1e-5, bias: bool = True) -> Value:
    """With its parameters "<name>.weight" and "<name>.bias"."""
    g = _graph_of(x)
    return g._value(
        lib.clv_parallel_layer_norm,
        g._id(x),
        _rules(g, rules),
        ffi.new("char[]", c_str(name)),
        _c.real(eps, "eps"),
        bool(bias),
    )


def parallel_mlp(x: Value, rules: RulesLike = None, *, ffn: int, activation: str = "gelu", **options: Any) -> Value:
    """x [...,M]: column-parallel "up" (or "gate_up"), activation, row-parallel "down". Options: gated, bias, init,
    output_init."""
    options = {"ffn": ffn, "activation": activation, **options}
    return _with_x(lib.clv_parallel_mlp, "clv_mlp_options", "parallel_mlp", x, rules, options)


def parallel_experts(
    x: Value, rules: RulesLike = None, *, experts: int, top_k: int, ffn: int, activation: str = "silu", **options: Any
) -> Value:
    """x [...,M]: a router and the gated MLPs of the top_k experts that it chooses for each row. Options: normalised,
    shared_ffn, shared_gate, init, output_init."""
    options = {"experts": experts, "top_k": top_k, "ffn": ffn, "activation": activation, **options}
    return _with_x(lib.clv_parallel_experts, "clv_experts_options", "parallel_experts", x, rules, options)


def parallel_attention(x: Value, rules: RulesLike = None, *, heads: int, **options: Any) -> Value:
    """x [B,S,M] -> [B,S,M]. Options: kv_heads, head_dim, bidirectional, rope (a dict with theta, ...), window, bias,
    output_bias, mask, context, offset, init, output_init, dropout, dropout_key (a number), dropout_step."""
    return _with_x(
        lib.clv_parallel_attention,
        "clv_self_attention_options",
        "parallel_attention",
        x,
        rules,
        {"heads": heads, **options},
    )


def transformer_block(
    x: Value,
    rules: RulesLike = None,
    *,
    form: str = "llama",
    heads: int,
    kv_heads: int = 0,
    ffn: int = 0,
    **options: Any,
) -> Value:
    """A block of the form llama, gpt or bert with the library's defaults for it, but for options: eps, norm_bias,
    dropout, dropout_key (a number), dropout_step, attention and mlp (dicts of the options of those layers)."""
    g = _graph_of(x)
    kind = _c.enum_value(ffi.typeof("clv_block_form"), form, "a block's form")
    kept = _c.options("clv_block_options", {}, "transformer_block")
    kept.struct[0] = lib.clv_block_defaults(
        kind, *(_c.whole(n, what) for n, what in ((heads, "heads"), (kv_heads or heads, "kv_heads"))),
        _c.whole(ffn or 4 * x.shape[-1], "ffn"),
    )  # fmt: skip
    _c.fill(kept, _ids(g, options), "transformer_block")
    return g._value(lib.clv_transformer_block, g._id(x), _rules(g, rules), kept.struct)
