"""Graphs over whole tensors: values with operators and NumPy's names, stated layouts, gradients."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Union

from . import _c
from ._c import NULL, dtype_code, dtype_name, as_shape, shape_of, c_str
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from .errors import CleaveError, DtypeError, check, exception_of, py_str
from .mesh import Layout, LayoutLike, Mesh, MeshLike, as_layout, as_mesh

Number = Union[int, float]
Axes = Union[int, Sequence[int], None]


class Graph(_c.ReadOnly, ProcessLocal):
    """A computation on a mesh, built op by op, for :func:`cleave.compile`.

    A mistake raises where it is made. Values that were made before stay; ops of the layers in :mod:`cleave.nn` that a
    mistake interrupts may have made state.
    """

    def __init__(self, mesh: MeshLike = None) -> None:
        self.mesh = as_mesh(mesh)
        out = ffi.new("clv_graph **")
        check(lib.clv_graph_new, out, self.mesh._mesh)
        self._handle = Handle(out[0], lib.clv_graph_free, "graph")
        self._inputs: dict[str, Value] = {}

    def __str__(self) -> str:
        """The graph as text, one value a line."""
        with self._handle.shared() as graph:
            return _c.print_to_string(lib.clv_graph_print, graph)

    # ---- calls ----

    def _call(self, function: Any, *arguments: Any) -> Any:
        """function(graph, ...), whose failure the graph holds, until it is raised."""
        err = ffi.new("clv_error *")
        with self._handle.exclusive() as graph:
            result = function(graph, *arguments)
            if lib.clv_graph_status(graph, err):
                lib.clv_graph_clear_error(graph)
                raise exception_of(err)
        return result

    def _value(self, function: Any, *arguments: Any) -> "Value":
        made = self._call(function, *arguments)
        if not lib.clv_valid(made):
            raise CleaveError("nothing was made")
        return Value(self, made)

    def _id(self, value: Any) -> Any:
        """The clv_value of a value of this graph."""
        if not isinstance(value, Value):
            raise TypeError(f"a value of a graph is wanted, not {type(value).__name__}; arrays enter a graph as inputs")
        if value.graph is not self:
            raise ValueError(f"{value!r} is of another graph")
        return value._value

    def _optional(self, value: Any) -> Any:
        return ffi.new("clv_value *")[0] if value is None else self._id(value)

    # ---- what comes in, what stays, what goes out ----

    def input(self, name: str, shape: Any, dtype: Any = "f32", layout: LayoutLike = None) -> "Value":
        """A tensor given at each run; layout None: the partitioner chooses."""
        shape = as_shape(shape)
        where = as_layout(layout, self.mesh, len(shape))
        return self._value(lib.clv_input, _name(name), dtype_code(dtype), len(shape), list(shape), where)

    def parameter(
        self, name: str, shape: Any, dtype: Any = "f32", layout: LayoutLike = None, init: Any = "zeros"
    ) -> "Value":
        """A parameter, of floats: state that outlives a run, kept in its layout (None: whole on every rank). init:
        "zeros", "ones", ("normal", 0.02), ("uniform", 0.1), ("lecun_normal", fan_in)."""
        shape = as_shape(shape)
        where = as_layout(layout, self.mesh, len(shape))
        code = dtype_code(dtype)
        return self._value(lib.clv_state, _name(name), code, len(shape), list(shape), where, _c.as_init(init))

    def state(
        self,
        name: str,
        shape: Any,
        dtype: Any = "f32",
        layout: LayoutLike = None,
        init: Any = "zeros",
        role: str = "buffer",
    ) -> "Value":
        """State that is no parameter, else the same. role: "buffer", "cache" or "optimizer" (plans of memory go by
        it)."""
        roles = {"buffer": lib.CLV_ROLE_BUFFER, "cache": lib.CLV_ROLE_CACHE, "optimizer": lib.CLV_ROLE_OPTIMIZER}
        if role not in roles:
            raise ValueError(f"there is no role {role!r}; valid: {', '.join(roles)}")
        shape = as_shape(shape)
        where = as_layout(layout, self.mesh, len(shape))
        code, called = dtype_code(dtype), _name(name)
        return self._value(
            lib.clv_state_with_role, roles[role], called, code, len(shape), list(shape), where, _c.as_init(init)
        )

    def parameters(self) -> list["Value"]:
        """The parameters, in the order they were made."""
        with self._handle.exclusive() as graph:
            n = lib.clv_graph_parameters(graph, NULL, 0)
            found = ffi.new("clv_value[]", n or 1)
            lib.clv_graph_parameters(graph, found, n)
        return [Value(self, found[i]) for i in range(n)]

    def assign(self, state: "Value", value: "Value") -> None:
        """At the end of a run the state becomes the value."""
        self._call(lib.clv_assign, self._id(state), self._id(value))

    def output(self, name: str, value: "Value", layout: LayoutLike = None) -> None:
        """Returns the value by name from each run."""
        where = as_layout(layout, self.mesh, value.ndim if isinstance(value, Value) else 0)
        self._call(lib.clv_output, _name(name), self._id(value), where)

    def constrain(self, x: "Value", layout: LayoutLike) -> "Value":
        """The value, with a stated layout (JAX's with_sharding_constraint)."""
        x_id = self._id(x)
        return self._value(lib.clv_constrain, x_id, as_layout(layout if layout is not None else "", self.mesh, x.ndim))

    def keep_in_place(self, value: "Value", axis: str) -> None:
        """The partitioner is never to move the value over this axis: products come to it."""
        self._call(lib.clv_keep_stationary, self._id(value), c_str(axis, "an axis"))

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names of state and ops made in the block begin with "name."."""
        self._call(lib.clv_graph_push_scope, b"%s", ffi.new("char[]", c_str(name, "a scope")))
        try:
            yield
        finally:
            with self._handle.exclusive() as graph:
                lib.clv_graph_pop_scope(graph)

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Ops made in it are a block, of which ``compile(graph, recompute=...)`` says what the backward pass makes
        again; :func:`transformer_block` makes one of its own."""
        self._call(lib.clv_begin_block)
        try:
            yield
        finally:
            with self._handle.exclusive() as graph:
                lib.clv_end_block(graph)

    def gradients(self, loss: "Value", wrt: Sequence["Value"], seed: "Value | None" = None) -> list["Value"]:
        """d loss / d each value; with a seed, of <seed, loss> for a loss of any shape."""
        values = [self._id(v) for v in wrt]
        out = ffi.new("clv_value[]", len(values) or 1)
        given = ffi.new("clv_value[]", values or 1)
        self._call(lib.clv_gradients, self._id(loss), self._optional(seed), given, len(values), out)
        return [Value(self, out[i]) for i in range(len(values))]

    def adamw(self, parameter: "Value", gradient: "Value", lr: "Value", step: "Value", **options: Any) -> None:
        """An update by AdamW (beta1, beta2, eps, weight_decay, state_layout, grad_scale: of :func:`clip_scale`, exact:
        zeros are zeros, not the defaults); lr: f32 scalar, step: i32 scalar, 1 at first."""
        kept = self._update_options("adamw", parameter, options)
        ids = [self._id(v) for v in (parameter, gradient, lr, step)]
        self._call(lib.clv_adamw, *ids, kept.struct)

    def sgd(self, parameter: "Value", gradient: "Value", lr: "Value", **options: Any) -> None:
        """An update by gradient descent with momentum, as torch.optim.SGD (momentum, weight_decay, state_layout,
        grad_scale, exact)."""
        kept = self._update_options("sgd", parameter, options)
        self._call(lib.clv_sgd, *[self._id(v) for v in (parameter, gradient, lr)], kept.struct)

    def lion(self, parameter: "Value", gradient: "Value", lr: "Value", **options: Any) -> None:
        """An update by Lion (beta1, beta2, weight_decay, state_layout, grad_scale, exact)."""
        kept = self._update_options("lion", parameter, options)
        self._call(lib.clv_lion, *[self._id(v) for v in (parameter, gradient, lr)], kept.struct)

    def _update_options(self, kind: str, parameter: "Value", options: dict[str, Any]) -> Any:
        if "state_layout" in options:
            options["state_layout"] = as_layout(options["state_layout"], self.mesh, parameter.ndim)
        scale = self._optional(options.pop("grad_scale", None))
        kept = _c.options(f"clv_{kind}_options", options, kind)
        kept.struct.grad_scale = scale
        return kept

    # ---- constants ----

    def full(self, shape: Any, value: Number, dtype: Any = "f32") -> "Value":
        """A tensor of one value."""
        shape = as_shape(shape)
        code = dtype_code(dtype)
        return self._value(lib.clv_fill, code, len(shape), list(shape), _number_for(dtype_name(code), value))

    def zeros(self, shape: Any, dtype: Any = "f32") -> "Value":
        """A tensor of zeros."""
        return self.full(shape, 0.0, dtype)

    def ones(self, shape: Any, dtype: Any = "f32") -> "Value":
        """A tensor of ones."""
        return self.full(shape, 1.0, dtype)

    def arange(self, n: int, offset: "Value | None" = None) -> "Value":
        """i32 [n]: offset + i; an offset [B] makes [B,n]."""
        return self._value(lib.clv_iota, _c.whole(n, "n"), self._optional(offset))

    def compile(self, **options: Any) -> Any:
        """:func:`cleave.compile` of this graph."""
        from .program import compile

        return compile(self, **options)

    def close(self) -> None:
        """Frees the graph; programs that were made of it stay."""
        self._handle.close()

    def __repr__(self) -> str:
        return f"<cleave.Graph on {self.mesh}>"


def _name(name: Any) -> bytes:
    text = c_str(name, "a name")
    if not text:
        raise ValueError("a name is empty")
    return text


def _key(key: Any) -> Any:
    return lib.clv_key_seed(_c.whole(key, "a key"))


#: The largest and smallest that a dtype of whole numbers holds.
_WHOLE = {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1), "u8": (0, 255), "bool": (0, 1)}
_COMPARED = "values are compared when a program runs: equal(x, y), or `is` for the same value"


def _number_for(dtype: str, number: Any) -> float:
    """A number as it stands beside a value of a dtype, which must hold it."""
    if dtype not in _WHOLE:
        return float(number)
    if not float(number).is_integer():
        raise TypeError(f"{dtype} and {number!r}, which is no whole number: astype('f32') first")
    low, high = _WHOLE[dtype]
    n = int(number)
    if not low <= n <= high or int(float(n)) != n:
        raise OverflowError(f"{dtype} and {number!r}, which it does not hold; astype() first")
    return float(n)


class Value(_c.ReadOnly, ProcessLocal):
    """A tensor of a graph: its shape and dtype are known, its elements are when a program runs.

    Operators take a number on one side where the value's dtype holds it: integers take whole numbers within their
    range, and neither them nor bool divide; :func:`cleave.astype` first. == is :func:`cleave.equal`: two values are
    compared when a program runs.
    """

    _read_only = ("graph",)
    __slots__ = ("_type", "_value", "graph", "__weakref__")
    __array_ufunc__ = None  # NumPy's operators leave ours to us

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a value of a graph has no elements before a program runs: make it an output")

    __hash__ = object.__hash__

    def __init__(self, graph: Graph, value: Any) -> None:
        self.graph, self._value = graph, ffi.new("clv_value *", {"id": value.id})[0]  # its own, wherever the other lies
        with graph._handle.exclusive() as pointer:
            self._type = lib.clv_graph_type(pointer, value)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of its dimensions."""
        return shape_of(self._type.shape, self._type.rank)

    @property
    def dtype(self) -> str:
        """ "f32", "bf16", "f64", "f16", "i32", "i64", "u8" or "bool"."""
        return dtype_name(self._type.dtype)

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return int(self._type.rank)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def name(self) -> str | None:
        """Of an input or of state."""
        with self.graph._handle.exclusive() as graph:
            return py_str(lib.clv_value_name(graph, self._value)) or None

    @property
    def layout(self) -> Layout:
        """That was stated of an input or of state; of other values: whole."""
        with self.graph._handle.exclusive() as graph:
            return Layout._of(self.graph.mesh, lib.clv_value_layout(graph, self._value))

    def __repr__(self) -> str:
        type_ = ffi.new("clv_type *", self._type)
        name = None if self.graph._handle.closed else self.name
        return f"<cleave.Value {_c.print_to_string(lib.clv_type_print, type_)}{f' {name}' if name else ''}>"

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        if self is other:
            raise TypeError("x == x: " + _COMPARED)
        if isinstance(other, (Value, int, float)) or hasattr(other, "__array__"):
            raise TypeError(_COMPARED)
        return NotImplemented

    def __bool__(self) -> bool:
        raise TypeError("a value of a graph is known when a program runs; use where(condition, a, b)")

    def __iter__(self) -> Iterator["Value"]:
        return (self[i] for i in range(len(self)))

    # ---- operators ----

    def _other(self, other: Any) -> "Value":
        if isinstance(other, Value):
            return other
        if isinstance(other, bool) or not hasattr(other, "__float__") or bool(getattr(other, "ndim", 0)):
            raise TypeError(
                f"a value or a number is wanted, not {type(other).__name__}; arrays enter a graph as inputs"
            )
        return self.graph.full((), _number_for(self.dtype, other), self.dtype)

    def _combine(self, kind: int, other: Any, swapped: bool = False) -> "Value":
        if self.dtype in _WHOLE and kind == lib.CLV_DIV:
            raise DtypeError(f"{self.dtype} has no division: astype('f32') first")
        if self.dtype == "bool" and (kind == lib.CLV_SUB or not isinstance(other, Value)):
            raise DtypeError(
                f"bool has no {'difference' if kind == lib.CLV_SUB else 'arithmetic with numbers'}: astype('i32') first"
            )
        try:
            b = self._other(other)
        except TypeError:
            if isinstance(other, (int, float, complex, str)) or hasattr(other, "__array__"):
                raise
            return NotImplemented  # type: ignore[no-any-return]
        first, second = (b, self) if swapped else (self, b)
        return self.graph._value(lib.clv_binary, kind, self.graph._id(first), self.graph._id(second))

    def __add__(self, other: Any) -> "Value":
        return self._combine(lib.CLV_ADD, other)

    def __radd__(self, other: Any) -> "Value":
        return self._combine(lib.CLV_ADD, other, True)

    def __sub__(self, other: Any) -> "Value":
        return self._combine(lib.CLV_SUB, other)

    def __rsub__(self, other: Any) -> "Value":
        return self._combine(lib.CLV_SUB, other, True)

    def __mul__(self, other: Any) -> "Value":
        return self._combine(lib.CLV_MUL, other)

    def __rmul__(self, other: Any) -> "Value":
        return self._combine(lib.CLV_MUL, other, True)

    def __truediv__(self, other: Any) -> "Value":
        return self._combine(lib.CLV_DIV, other)

    def __rtruediv__(self, other: Any) -> "Value":
        return self._combine(lib.CLV_DIV, other, True)

    def __neg__(self) -> "Value":
        if self.dtype in _WHOLE:
            return 0 - self
        return self.graph._value(lib.clv_unary, lib.CLV_NEG, self._value)

    def __pos__(self) -> "Value":
        if self.dtype == "bool":
            raise DtypeError("bool has no sign: astype('i32') first")
        return self

    def __abs__(self) -> "Value":
        return self if self.dtype in ("u8", "bool") else maximum(self, -self)

    def __matmul__(self, other: Any) -> "Value":
        return matmul(self, other)

    def __pow__(self, exponent: Any) -> "Value":
        return power(self, exponent)

    # ---- methods as arrays have them ----

    def __getitem__(self, key: Any) -> "Value":
        return _getitem(self, key)

    def reshape(self, *shape: Any) -> "Value":
        """:func:`cleave.reshape`: one size may be -1."""
        return reshape(self, shape[0] if len(shape) == 1 else shape)

    def ravel(self) -> "Value":
        """In one dimension."""
        return reshape(self, (-1,))

    def transpose(self, *axes: Any) -> "Value":
        """:func:`cleave.transpose`: without axes all are turned round."""
        return transpose(self, (axes[0] if len(axes) == 1 and not hasattr(axes[0], "__index__") else axes) or None)

    @property
    def T(self) -> "Value":  # noqa: N802  NumPy's name
        """With its dimensions turned round."""
        return transpose(self)

    def swapaxes(self, a: int, b: int) -> "Value":
        """With two dimensions exchanged."""
        return swapaxes(self, a, b)

    def astype(self, dtype: Any) -> "Value":
        """Converted to a dtype; float to integer truncates."""
        return astype(self, dtype)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> "Value":
        """The sum over an axis, axes, or all (None)."""
        return sum(self, axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> "Value":
        """The mean over an axis, axes, or all (None)."""
        return mean(self, axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> "Value":
        """The largest over an axis, axes, or all (None)."""
        return max(self, axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> "Value":
        """The smallest over an axis, axes, or all (None)."""
        return min(self, axis, keepdims)

    def constrain(self, layout: LayoutLike) -> "Value":
        """:meth:`Graph.constrain`."""
        return self.graph.constrain(self, layout)


def _graph_of(*values: Any) -> Graph:
    for v in values:
        if isinstance(v, Value):
            return v.graph
    raise TypeError("a value of a graph is wanted; arrays enter a graph as inputs")


def _need_floats(what: str, *values: Any) -> None:
    g = _graph_of(*values)
    for v in values:
        g._id(v)
        if v.dtype in _WHOLE:
            raise DtypeError(f"{what} of {v.dtype}; valid: f32, bf16, f64, f16: astype('f32') first")


def _axes(axis: Axes, ndim: int) -> list[int]:
    axes = []
    for at in range(ndim) if axis is None else _c.as_ints(axis, "an axis"):
        if not -ndim <= at < ndim:
            raise ValueError(f"axis {at} of a tensor of {ndim} dimensions")
        axes.append(at % ndim)
    if len(set(axes)) != len(axes):
        raise ValueError(f"axes {axes} name one twice")
    return axes


# ---- functions of one element ----


def _map(kind: int, name: str, x: Value) -> Value:
    _need_floats(name, x)
    return x.graph._value(lib.clv_unary, kind, x._value)


def exp(x: Value) -> Value:
    """e to the x, element by element."""
    return _map(lib.CLV_EXP, "exp", x)


def log(x: Value) -> Value:
    """The natural logarithm."""
    return _map(lib.CLV_LOG, "log", x)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent."""
    return _map(lib.CLV_TANH, "tanh", x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    return _map(lib.CLV_SIGMOID, "sigmoid", x)


def gelu(x: Value, approximate: bool = False) -> Value:
    """By erf; approximate: by tanh."""
    return _map(lib.CLV_GELU_TANH if approximate else lib.CLV_GELU, "gelu", x)


def silu(x: Value) -> Value:
    """x * sigmoid(x)."""
    return _map(lib.CLV_SILU, "silu", x)


def relu(x: Value) -> Value:
    """max(x, 0)."""
    return _map(lib.CLV_RELU, "relu", x)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x)."""
    return _map(lib.CLV_RSQRT, "rsqrt", x)


def sqrt(x: Value) -> Value:
    """The square root."""
    return _map(lib.CLV_SQRT, "sqrt", x)


def square(x: Value) -> Value:
    """x * x."""
    return power(x, 2)


def negative(x: Value) -> Value:
    """-x."""
    return -x


def absolute(x: Value) -> Value:
    """max(x, -x)."""
    return abs(x)


def power(x: Value, exponent: Any) -> Value:
    """x ** exponent, a whole number, 0.5 or -0.5."""
    if isinstance(exponent, Value):
        raise TypeError("an exponent is a number; exp(y * log(x)) for a value y")
    if _graph_of(x) and x.dtype == "bool":
        raise DtypeError("bool has no powers: astype('i32') first")
    if exponent == 0.5:
        return sqrt(x)
    if exponent == -0.5:
        return rsqrt(x)
    try:
        n = operator.index(exponent)
    except TypeError:
        n = int(exponent) if isinstance(exponent, float) and exponent.is_integer() else None  # type: ignore[assignment]
    if n is None or not -64 <= n <= 64:
        raise ValueError(
            f"x ** {exponent!r}; valid: whole numbers from -64 to 64, 0.5, -0.5; else exp({exponent!r} * log(x))"
        )
    if n < 0:  # the gradient at 0 and infinity is that of the power: by way of x ** -n it would be NaN
        return 1.0 / power(x, -n) if x.dtype in _WHOLE else power(1.0 / x, -n)
    if n == 0:  # of infinity and NaN, too
        return where(x.graph.zeros((), "bool"), x, 1)
    result, base = None, x
    while True:
        if n & 1:
            result = base if result is None else result * base
        n >>= 1
        if not n:
            return result  # type: ignore[return-value]
        base = base * base


# ---- functions of two ----


def _binary(kind: int, a: Any, b: Any) -> Value:
    x = a if isinstance(a, Value) else b
    if not isinstance(x, Value):
        _graph_of(a, b)
    made = x._combine(kind, b if x is a else a, x is not a)
    if made is NotImplemented:
        raise TypeError("values and numbers are wanted")
    return made


def add(a: Any, b: Any) -> Value:
    """a + b, broadcast as NumPy does; one may be a number."""
    return _binary(lib.CLV_ADD, a, b)


def subtract(a: Any, b: Any) -> Value:
    """a - b."""
    return _binary(lib.CLV_SUB, a, b)


def multiply(a: Any, b: Any) -> Value:
    """a * b."""
    return _binary(lib.CLV_MUL, a, b)


def divide(a: Any, b: Any) -> Value:
    """a / b."""
    return _binary(lib.CLV_DIV, a, b)


def maximum(a: Any, b: Any) -> Value:
    """The larger, element by element."""
    return _binary(lib.CLV_MAXIMUM, a, b)


def minimum(a: Any, b: Any) -> Value:
    """The smaller, element by element."""
    return _binary(lib.CLV_MINIMUM, a, b)


def equal(x: Value, y: Any) -> Value:
    """1 where x == y, else 0, in the dtype of x; y has x's dimensions, or 1 in their place. Not differentiable."""
    g = _graph_of(x)
    other = x._other(y)
    if other.ndim < x.ndim:
        other = reshape(other, (1,) * (x.ndim - other.ndim) + other.shape)
    return g._value(lib.clv_equal, g._id(x), g._id(other))


def where(condition: Value, a: Any, b: Any) -> Value:
    """condition (bool or u8) ? a : b, broadcast together."""
    g = _graph_of(condition, a, b)
    like = a if isinstance(a, Value) else b
    if not isinstance(like, Value):
        raise TypeError("where() takes the dtype of a or b: one of them is a value, such as graph.full((), 5.0)")
    return g._value(lib.clv_where, g._id(condition), g._id(like._other(a)), g._id(like._other(b)))


def astype(x: Value, dtype: Any) -> Value:
    """Converted to a dtype; float to integer truncates, beyond its range to its end, and NaN is 0."""
    g = _graph_of(x)
    return g._value(lib.clv_cast, g._id(x), dtype_code(dtype))


# ---- reductions ----


def _reduce(kind: int, name: str, x: Value, axis: Axes, keepdims: bool) -> Value:
    _need_floats(name, x)
    dims = _axes(axis, x.ndim)
    return x.graph._value(lib.clv_reduce, kind, x._value, dims or NULL, len(dims), bool(keepdims))


def sum(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:  # noqa: A001
    """Over an axis, axes, or all (None)."""
    return _reduce(lib.CLV_SUM, "sum", x, axis, keepdims)


def mean(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """Over an axis, axes, or all (None)."""
    return _reduce(lib.CLV_MEAN, "mean", x, axis, keepdims)


def max(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:  # noqa: A001
    """Over an axis, axes, or all (None)."""
    return _reduce(lib.CLV_MAX, "max", x, axis, keepdims)


def min(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:  # noqa: A001
    """Over an axis, axes, or all (None)."""
    _need_floats("min", x)
    return -max(-x, axis, keepdims)


def var(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """Of the population (ddof 0)."""
    _need_floats("var", x)
    return mean(square(x - mean(x, axis, True)), axis, keepdims)


def _last(x: Value, axis: int, function: Any) -> Value:
    """function of the last dimension, of another."""
    at = _axes(axis, x.ndim)[0]
    return function(x) if at == x.ndim - 1 else swapaxes(function(swapaxes(x, at, -1)), at, -1)


def softmax(x: Value, axis: int = -1) -> Value:
    """exp(x) / sum(exp(x)) along an axis."""
    _need_floats("softmax", x)
    return _last(x, axis, lambda v: x.graph._value(lib.clv_softmax, v._value))


def log_softmax(x: Value, axis: int = -1) -> Value:
    """The logarithm of softmax."""
    _need_floats("log_softmax", x)
    shifted = x - max(x, axis, True)
    return shifted - log(sum(exp(shifted), axis, True))


# ---- shapes ----


def reshape(x: Value, shape: Any) -> Value:
    """One size may be -1."""
    g = _graph_of(x)
    x_id = g._id(x)
    sizes = list(as_shape(shape))
    if sizes.count(-1) == 1:
        known = math.prod(n for n in sizes if n != -1)
        if known <= 0 or x.size % known:
            raise ValueError(f"{x.size} elements of {x.shape} do not make {tuple(sizes)}")
        sizes[sizes.index(-1)] = x.size // known
    return g._value(lib.clv_reshape, x_id, len(sizes), sizes)


def transpose(x: Value, axes: Any = None) -> Value:
    """Dimension i of the result is x's axes[i]; None: all turned round."""
    g = _graph_of(x)
    x_id = g._id(x)
    order = list(reversed(range(x.ndim))) if axes is None else _axes(axes, x.ndim)
    if len(order) != x.ndim:
        raise ValueError(f"axes {tuple(order)} of a tensor of {x.ndim} dimensions")
    return g._value(lib.clv_transpose, x_id, order) if x.ndim else x


def swapaxes(x: Value, a: int, b: int) -> Value:
    """With two dimensions exchanged."""
    _graph_of(x)
    order = list(range(x.ndim))
    i, j = _axes(a, x.ndim)[0], _axes(b, x.ndim)[0]
    order[i], order[j] = j, i
    return transpose(x, order) if i != j else x


def expand_dims(x: Value, axis: int) -> Value:
    """With a dimension of size 1 at an axis."""
    _graph_of(x)
    at = _axes(axis, x.ndim + 1)[0]
    return reshape(x, x.shape[:at] + (1,) + x.shape[at:])


def squeeze(x: Value, axis: Axes = None) -> Value:
    """Without dimensions of size 1: all, or those of axis."""
    _graph_of(x)
    drop = [d for d, n in enumerate(x.shape) if n == 1] if axis is None else _axes(axis, x.ndim)
    if any(x.shape[d] != 1 for d in drop):
        raise ValueError(f"squeeze of dimensions {drop} of {x.shape}")
    return reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in drop))


def broadcast_to(x: Value, shape: Any) -> Value:
    """Stretched to a shape as NumPy does."""
    made = x * _graph_of(x).ones(shape, x.dtype)
    if made.shape != as_shape(shape):
        raise ValueError(f"{x.shape} does not broadcast to {as_shape(shape)}")
    return made


def _index(k: Any) -> int:
    """A whole number, which an array of one dimension is not."""
    try:
        if not isinstance(k, bool):
            return operator.index(k)
    except TypeError:
        pass
    raise TypeError(f"indices are whole numbers, slices, None and '...', not {type(k).__name__}; see embedding()")


def _getitem(x: Value, key: Any) -> Value:
    keys = list(key) if isinstance(key, tuple) else [key]
    at = [d for d, k in enumerate(keys) if k is Ellipsis]  # == would compare arrays and values
    if len(at) > 1:
        raise IndexError("more than one '...'")
    taken = len([k for k in keys if k is not None and k is not Ellipsis])
    if taken > x.ndim:
        raise IndexError(f"{taken} indices of a tensor of {x.ndim} dimensions")
    gap = slice(at[0], at[0] + 1) if at else slice(len(keys), None)
    keys[gap] = [slice(None)] * (x.ndim - taken)
    begin: list[int] = []
    end: list[int] = []
    shape: list[int] = []
    for k in keys:
        if k is None:
            shape.append(1)
            continue
        n = x.shape[len(begin)]
        if isinstance(k, slice):
            lo, hi, step = k.indices(n)
            if step != 1:
                raise IndexError(f"a slice's step is 1, not {step}")
            hi = hi if hi > lo else lo
            shape.append(hi - lo)
        else:
            lo = _index(k)
            if not -n <= lo < n:
                raise IndexError(f"index {lo} of {n}")
            lo %= n
            hi = lo + 1
        begin.append(lo)
        end.append(hi)
    cut = x
    if begin != [0] * x.ndim or end != list(x.shape):
        cut = x.graph._value(lib.clv_slice, x._value, begin, end)
    return cut if cut.shape == tuple(shape) else reshape(cut, shape)


def pad(x: Value, widths: Any) -> Value:
    """Zeros around x: widths[d] = (before, after), or one pair for all."""
    g = _graph_of(x)
    x_id = g._id(x)
    pairs = (
        [tuple(w) if not hasattr(w, "__index__") else w for w in widths]
        if not hasattr(widths, "__index__")
        else [widths] * x.ndim
    )
    if len(pairs) == 2 and all(hasattr(p, "__index__") for p in pairs):
        pairs = [tuple(pairs)] * x.ndim
    pairs = [(p, p) if hasattr(p, "__index__") else p for p in pairs]
    if len(pairs) != x.ndim or any(len(p) != 2 for p in pairs):
        raise ValueError(f"{len(pairs)} pairs of widths for {x.ndim} dimensions")
    before, after = [[_c.whole(p[i], "a width") for p in pairs] for i in (0, 1)]
    return g._value(lib.clv_pad, x_id, before, after) if x.ndim else x


def concatenate(values: Sequence[Value], axis: int = 0) -> Value:
    """One after another along an axis."""
    values = list(values)
    if not values:
        raise ValueError("concatenate() of no values")
    g = _graph_of(*values)
    given = ffi.new("clv_value[]", [g._id(v) for v in values])
    return g._value(lib.clv_concat, given, len(values), _axes(axis, values[0].ndim)[0])


def stack(values: Sequence[Value], axis: int = 0) -> Value:
    """Along a new axis."""
    return concatenate([expand_dims(v, axis) for v in values], axis)


def split(x: Value, sections: int, axis: int = 0) -> list[Value]:
    """Equal parts."""
    _graph_of(x)
    at, n = _axes(axis, x.ndim)[0], _c.whole(sections, "sections")
    if n < 1 or x.shape[at] % n:
        raise ValueError(f"{x.shape[at]} in {n} equal parts")
    size = x.shape[at] // n
    return [x[(slice(None),) * at + (slice(i * size, (i + 1) * size),)] for i in range(n)]


# ---- products ----

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _parse_einsum(subscripts: str, n: int) -> tuple[list[str], str]:
    if not isinstance(subscripts, str):
        raise TypeError(f"einsum's subscripts are a str, not {type(subscripts).__name__}")
    text = subscripts.replace(" ", "")
    inputs, arrow, result = text.partition("->")
    operands = inputs.split(",")
    if len(operands) != n:
        raise ValueError(f"einsum '{subscripts}' names {len(operands)} operands, {n} are given")
    if not all(letter in _LETTERS for letter in inputs.replace(",", "") + result):
        raise ValueError(f"einsum '{subscripts}': subscripts are letters")
    if any(len(set(o)) != len(o) for o in [*operands, result]):
        raise ValueError(f"einsum '{subscripts}': a letter twice in one tensor")
    if not arrow:
        letters = inputs.replace(",", "")
        result = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if not set(result) <= set(inputs):
        raise ValueError(f"einsum '{subscripts}': the result has a letter that no operand has")
    return operands, result


def _reduce_letters(x: Value, letters: str, keep: str) -> tuple[Value, str]:
    gone = [d for d, c in enumerate(letters) if c not in keep]
    return (sum(x, gone), "".join(c for c in letters if c in keep)) if gone else (x, letters)


def einsum(subscripts: str, *operands: Value) -> Value:
    """Products by subscripts, e.g. ``einsum("bsm,mhd->bshd", x, w)``: NumPy's, but for a letter twice in one tensor,
    and "..."."""
    g = _graph_of(*operands)
    letters, result = _parse_einsum(subscripts, len(operands))
    for o, subs in zip(operands, letters):
        g._id(o)
        if len(operands) > 1:
            _need_floats("a product", o)
        if o.ndim != len(subs):
            raise ValueError(f"einsum '{subscripts}': '{subs}' for a tensor of {o.ndim} dimensions")
    x, have = operands[0], letters[0]
    for i in range(1, len(operands)):
        y, more = operands[i], letters[i]
        later = set(result).union(*letters[i + 1 :])
        x, have = _reduce_letters(x, have, "".join(later | set(more)))
        y, more = _reduce_letters(y, more, "".join(later | set(have)))
        is_last = i == len(operands) - 1
        out = result if is_last else "".join(c for c in dict.fromkeys(have + more) if c in later)
        x = g._value(lib.clv_einsum, c_str(f"{have},{more}->{out}"), g._id(x), g._id(y))
        have = out
    x, have = _reduce_letters(x, have, result)
    return x if have == result else transpose(x, [have.index(c) for c in result])


def einsum_to(subscripts: str, a: Value, b: Value, to: Value | None = None, dtype: Any = None) -> Value:
    """The product of two, in its own dtype, or in f32 of operands of 16 bits, where what was summed is not rounded;
    added to `to`, of that dtype, in the same pass."""
    g = _graph_of(a, b)
    kind = dtype_code(dtype if dtype is not None else (a if to is None else to).dtype)
    return g._value(lib.clv_einsum_accumulate, c_str(subscripts), g._id(a), g._id(b), g._optional(to), kind)


def matmul(a: Value, b: Value) -> Value:
    """a @ b by NumPy's rules."""
    if not isinstance(a, Value) or not isinstance(b, Value):
        raise TypeError("matmul takes two values; arrays enter a graph as inputs")
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError("matmul of a scalar; use *")
    inner = _LETTERS[-1]
    a_letters, b_letters = ("" if a.ndim == 1 else "Y") + inner, inner + ("" if b.ndim == 1 else "X")
    if a.shape[-1] != b.shape[0 if b.ndim == 1 else -2]:
        raise ValueError(f"matmul of {a.shape} and {b.shape}: the inner sizes differ")
    batch, a_batch, b_batch = "", "", ""
    a_sizes, b_sizes = list(a.shape[:-2]), list(b.shape[:-2])
    depth = len(a_sizes) if len(a_sizes) > len(b_sizes) else len(b_sizes)
    for i in range(-depth, 0):
        letter = _LETTERS[depth + i]
        have = [len(s) >= -i for s in (a_sizes, b_sizes)]
        alone = [not have[k] or s[i] == 1 for k, s in enumerate((a_sizes, b_sizes))]
        batch += letter
        a_batch += letter if have[0] else ""
        b_batch += letter if have[1] else ""
        if all(have) and alone[0] != alone[1]:  # one is stretched: it goes without
            a_batch, b_batch = (a_batch[:-1] + "1", b_batch) if alone[0] else (a_batch, b_batch[:-1] + "1")
    a, a_batch = _without_ones(a, a_batch)
    b, b_batch = _without_ones(b, b_batch)
    out = batch + a_letters.replace(inner, "") + b_letters.replace(inner, "")
    return einsum(f"{a_batch}{a_letters},{b_batch}{b_letters}->{out}", a, b)


def _without_ones(x: Value, batch: str) -> tuple[Value, str]:
    ones = [d for d, c in enumerate(batch) if c == "1"]
    return (squeeze(x, ones) if ones else x), batch.replace("1", "")


def dot(a: Value, b: Value) -> Value:
    """matmul, or the product with a scalar."""
    _graph_of(a), _graph_of(b)
    return a * b if a.ndim == 0 or b.ndim == 0 else matmul(a, b)


# ---- transformers' ops ----


def embedding(table: Value, ids: Value) -> Value:
    """Rows of a table [V,M] by ids [...]: [...,M]; an id outside 0 to V-1 gives zeros: none counts from the end, as
    NumPy's take() does, and none is an error."""
    g = _graph_of(table)
    return g._value(lib.clv_embedding, g._id(table), g._id(ids))


def rms_norm(x: Value, gain: Value, eps: float = 1e-5) -> Value:
    """x * rsqrt(mean(x^2) + eps) * gain over the last dimension."""
    g = _graph_of(x)
    return g._value(lib.clv_rms_norm, g._id(x), g._id(gain), float(eps))


def layer_norm(x: Value, gain: Value, bias: Value | None = None, eps: float = 1e-5) -> Value:
    """(x - mean) * rsqrt(var + eps) * gain + bias over the last dimension."""
    g = _graph_of(x)
    return g._value(lib.clv_layer_norm, g._id(x), g._id(gain), g._optional(bias), float(eps))


def bias_gelu(x: Value, bias: Value, approximate: bool = False) -> Value:
    """gelu(x + bias), bias over the last dimension."""
    g = _graph_of(x)
    return g._value(lib.clv_bias_gelu, g._id(x), g._id(bias), lib.CLV_GELU_TANH if approximate else lib.CLV_GELU)


def gated(x: Value, activation: str = "silu") -> Value:
    """act(gate) * up for x [...,2,F] = (gate, up); activation: silu, gelu, gelu_tanh or relu."""
    g = _graph_of(x)
    return g._value(lib.clv_gated, g._id(x), _c.enum_value(ffi.typeof("clv_unary_kind"), activation, "an activation"))


def _with_values(g: Graph, values: dict[str, Any]) -> dict[str, Any]:
    return {k: (g._id(v) if isinstance(v, Value) else v) for k, v in values.items()}


def attention(q: Value, kv: Value, *, causal: bool = True, **options: Any) -> Value:
    """q [B,Sq,H,D], kv [B,Sk,2,K,D] (keys, then values), H a multiple of K: [B,Sq,H,D]. Options: scale, mask (u8 or
    bool [B,Sk]), offset (i32 [] or [B]: where the first query stands among the keys), window, dropout of
    the softmax's values by dropout_key (a number) and dropout_step (i32 [])."""
    g = _graph_of(q)
    kept = _c.options("clv_attention_options", _with_values(g, options), "attention", causal=causal)
    return g._value(lib.clv_attention, g._id(q), g._id(kv), kept.struct)


def rope(x: Value, offset: Value | None = None, *, theta: float = 10000.0, **options: Any) -> Value:
    """Rotary position embedding of x [B,S,H,D]. Options: dims, interleaved, factor, low_frequency, high_frequency,
    original_positions."""
    g = _graph_of(x)
    kept = _c.options("clv_rope_options", options, "rope", theta=theta)
    return g._value(lib.clv_rope, g._id(x), g._optional(offset), kept.struct)


def rotate(x: Value, cos: Value, sin: Value, interleaved: bool = False) -> Value:
    """Rotary position embedding of x [...,D] by cosines and sines [...,D], or [...,D/2], one a pair."""
    g = _graph_of(x)
    return g._value(lib.clv_rotate, g._id(x), g._id(cos), g._id(sin), interleaved)


def cache_update(cache: Value, rows: Value, offset: Value) -> Value:
    """The cache [B,Smax,...] with rows [B,S,...] from row `offset` (i32 [] or [B]) on."""
    g = _graph_of(cache)
    return g._value(lib.clv_cache_update, g._id(cache), g._id(rows), g._id(offset))


def router(logits: Value, top_k: int, **options: Any) -> tuple[Value, Value]:
    """The top_k experts of each row of logits [...,E], and their weights: weights [...,top_k] (f32, or f64) and ids
    (i32). Options: sigmoid (else softmax), normalised, scale, bias ([E], added to choose), groups, top_groups."""
    g = _graph_of(logits)
    kept = _c.options("clv_router_options", _with_values(g, options), "router", top_k=top_k)
    out = ffi.new("clv_value[2]")
    g._call(lib.clv_router, g._id(logits), kept.struct, out, out + 1)
    return Value(g, out[0]), Value(g, out[1])


def experts(x: Value, ids: Value, weights: Value, gate_up: Value, down: Value, activation: str = "silu") -> Value:
    """The weighted sum of each row's experts, (act(x gate) * (x up)) down: x [...,M], ids and weights of router(),
    gate_up [E,M,2,F], down [E,F,M]: [...,M]."""
    g = _graph_of(x)
    operands = [g._id(v) for v in (x, ids, weights, gate_up, down)]
    kind = _c.enum_value(ffi.typeof("clv_unary_kind"), activation, "an activation")
    return g._value(lib.clv_experts, *operands, kind)


def expert_places(ids: Value, experts: int, capacity: int) -> Value:
    """Places of tokens at experts that have `capacity` places in each group: ids [groups...,S,K] -> expert * capacity +
    position, the first rows first; experts * capacity where the expert is full."""
    g = _graph_of(ids)
    return g._value(lib.clv_expert_places, g._id(ids), _c.whole(experts, "experts"), _c.whole(capacity, "capacity"))


def expert_dispatch(x: Value, places: Value, experts: int, capacity: int) -> Value:
    """Rows copied to their places: x [groups...,S,M] -> [groups...,E,C,M], 0 where no row has the place."""
    g = _graph_of(x)
    return g._value(lib.clv_expert_dispatch, g._id(x), g._id(places), _c.whole(experts, "experts"),
                    _c.whole(capacity, "capacity"))


def expert_combine(y: Value, places: Value, weights: Value) -> Value:
    """Rows brought back from their places: y [groups...,E,C,M] -> [groups...,S,M], the sum over k of weights[k] * y at
    place k."""
    g = _graph_of(y)
    return g._value(lib.clv_expert_combine, g._id(y), g._id(places), g._id(weights))


def cross_entropy(logits: Value, labels: Value, ignored: int = -100) -> Value:
    """Softmax cross-entropy a row: logits [...,V], labels [...]: [...]; 0 where the label is ignored."""
    g = _graph_of(logits)
    return g._value(lib.clv_cross_entropy, g._id(logits), g._id(labels), _c.whole(ignored, "ignored"))


def count_labels(labels: Value, ignored: int = -100, dtype: Any = "f32") -> Value:
    """How many labels are not ignored, a scalar."""
    g = _graph_of(labels)
    return g._value(lib.clv_count_labels, g._id(labels), _c.whole(ignored, "ignored"), dtype_code(dtype))


def dropout(x: Value, p: float, key: int = 0, step: Value | None = None) -> Value:
    """x / (1-p) where a random number of (key, step, index) is below 1-p, else 0: the same on every mesh."""
    g = _graph_of(x)
    return g._value(lib.clv_dropout, g._id(x), _c.real(p, "p"), _key(key), g._optional(step))


def global_norm(values: Sequence[Value]) -> Value:
    """The root of the sum of the squares of all elements of all values: an f32 scalar, each element counting once
    however they are split."""
    values = list(values)
    if not values:
        raise ValueError("global_norm() of no values")
    g = _graph_of(*values)
    given = ffi.new("clv_value[]", [g._id(v) for v in values])
    return g._value(lib.clv_global_norm, given, len(values))


def clip_scale(norm: Value, most: Number) -> Value:
    """min(1, most / (norm + 1e-6)): what gradients of this norm are multiplied by, as torch's clip_grad_norm_ does; NaN
    where the norm is not finite."""
    g = _graph_of(norm)
    return g._value(lib.clv_clip_scale, g._id(norm), _c.real(most, "most"))


def grad(loss: Value, wrt: Any) -> Any:
    """The gradient of a scalar by a value, or by each of a list."""
    g = _graph_of(loss)
    return g.gradients(loss, [wrt])[0] if isinstance(wrt, Value) else g.gradients(loss, wrt)
