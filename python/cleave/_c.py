"""Conversion of values between Python and C. Fields of structs come from the headers, by cffi."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable
from typing import Any

from ._cleave import ffi, lib
from .errors import check, py_str

NULL = ffi.NULL
MAX_RANK = lib.CLV_MAX_RANK


def c_str(text: Any, what: str = "a text") -> bytes:
    """A text as UTF-8 bytes for a C string."""
    if hasattr(text, "__fspath__"):
        text = text.__fspath__()
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogateescape")
    if not isinstance(text, bytes):
        raise TypeError(f"{what} is a str, not {type(text).__name__}")
    if b"\0" in text:
        raise ValueError(f"{what} holds a zero byte")
    return text


def whole(value: Any, what: str) -> int:
    """A value as an int; TypeError for one that is not a whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is a whole number, not {type(value).__name__}") from None


def as_ints(values: Any, what: str) -> tuple[int, ...]:
    """One whole number, or several, as a tuple of ints."""
    try:
        return (operator.index(values),)
    except TypeError:
        if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
            raise TypeError(f"{what} is a whole number, not {type(values).__name__}") from None
    return tuple(whole(value, what) for value in values)


def real(value: Any, what: str) -> float:
    """A value as a float; TypeError for one that is not a number."""
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise TypeError(f"{what} is a number, not {type(value).__name__}")
    return float(value)


def several(texts: Any, what: str) -> list[Any]:
    """Texts of an iterable as a list."""
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise TypeError(f"{what} is a str, or there is a list of them, not {type(texts).__name__}")
    return list(texts)


class ReadOnly:
    """Base of classes with read-only attributes, listed in _read_only: they can be set once."""

    __slots__ = ()
    _read_only: tuple[str, ...] = ("mesh",)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._read_only and hasattr(self, name):
            raise AttributeError(f"{type(self).__name__}.{name} is read-only")
        object.__setattr__(self, name, value)


def print_to_string(function: Callable[..., int], *arguments: Any) -> str:
    """Result of a function that writes as snprintf does, as a str."""
    needed = function(NULL, 0, *arguments)
    buffer = ffi.new("char[]", max(needed, 0) + 1)
    function(buffer, len(buffer), *arguments)
    return py_str(buffer)


def milliseconds(timeout: Any) -> int:
    """Seconds as milliseconds."""
    seconds = real(timeout, "timeout")
    if not 0 < seconds <= 1e9:
        raise ValueError(f"timeout is {timeout!r}; valid: seconds, more than 0 and at most 1e9")
    return max(1, round(1000 * seconds))


def as_shape(shape: Any) -> tuple[int, ...]:
    """One size, or several, as a shape."""
    sizes = as_ints(shape, "a size")
    if len(sizes) > MAX_RANK:
        raise ValueError(f"a tensor of {len(sizes)} dimensions; valid: at most {MAX_RANK}")
    return sizes


def shape_of(array: Any, rank: int) -> tuple[int, ...]:
    """The first `rank` sizes of a C array."""
    return tuple(array[d] for d in range(rank))


# ---- dtypes ----

DTYPES: dict[str, int] = {py_str(lib.clv_dtype_name(code)): code for code in range(lib.CLV_DTYPE_COUNT)}
_DTYPE_NAMES = {code: name for name, code in DTYPES.items()}
_NUMPY_NAMES = {
    "float32": "f32", "bfloat16": "bf16", "float64": "f64", "float16": "f16",
    "int32": "i32", "int64": "i64", "uint8": "u8", "bool": "bool",
}  # fmt: skip


def dtype_code(dtype: Any) -> int:
    """The clv_dtype of "f32", "float32", numpy.float32, torch.float32, ..."""
    if dtype is float:
        dtype = "f64"
    elif dtype is int:
        dtype = "i64"
    elif dtype is bool:
        dtype = "bool"
    name = (
        dtype
        if isinstance(dtype, str)
        else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    )
    name = name.rsplit(".", 1)[-1]
    out = ffi.new("clv_dtype *")
    check(lib.clv_dtype_parse, out, c_str(_NUMPY_NAMES.get(name, name), "a dtype"))
    return int(out[0])


def dtype_name(code: int) -> str:
    """The name of a clv_dtype."""
    return _DTYPE_NAMES[code]


# ---- structs by their fields ----


class Kept:
    """A C struct, and the objects that its pointers borrow."""

    def __init__(self, struct: Any) -> None:
        self.struct = struct
        self.kept: list[Any] = []


def _field(
    fields: dict[str, Any], name: str, what: str, without: tuple[str, ...] = (), beside: tuple[str, ...] = ()
) -> Any:
    """A field that may be set. without: fields that may not; beside: further names to list as valid."""
    if name not in fields or name in ("size", *without):
        valid = ", ".join(sorted({n for n in fields if n not in ("size", *without)} | set(beside)))
        raise TypeError(f"{what} has no option '{name}'; valid: {valid}")
    return fields[name]



def _fill(kept: Kept, struct: Any, kind: Any, values: dict[str, Any], what: str) -> None:
    fields = dict(kind.fields)
    for name, value in values.items():
        field = _field(fields, name, what)
        if value is None:
            continue
        if isinstance(value, dict) and field.type.kind == "struct":
            _fill(kept, getattr(struct, name), field.type, value, name)
            continue
        if field.type.cname == "struct clv_init" and not isinstance(value, ffi.CData):
            value = as_init(value)
        elif field.type.cname == "struct clv_key" and not isinstance(value, ffi.CData):
            value = lib.clv_key_seed(whole(value, name))
        elif field.type.cname == "char *" and not isinstance(value, ffi.CData):
            value = ffi.new("char[]", c_str(value, name))
        elif field.type.kind == "enum":
            value = enum_value(field.type, value, name)
        elif field.type.kind == "primitive":
            value = _number(field.type.cname, value, name)
        if isinstance(value, ffi.CData):
            kept.kept.append(value)
        try:
            setattr(struct, name, value)
        except (TypeError, OverflowError) as error:
            raise type(error)(f"{what}, {name}: {error}") from None


def _number(ctype: str, value: Any, name: str) -> Any:
    if ctype in ("float", "double"):
        return real(value, name)
    if ctype in ("_Bool", "bool"):
        if isinstance(value, (str, bytes)):
            raise TypeError(f"{name} is True or False, not {value!r}")
        return bool(value)
    return whole(value, name)


def enum_value(ctype: Any, value: Any, name: str) -> int:
    """The value of an enumerator by its name without the common prefix: "silu" for CLV_SILU, "normal" for
    CLV_INIT_NORMAL."""
    if ctype.cname in ("clv_dtype", "enum clv_dtype"):
        return dtype_code(value)
    if isinstance(value, str):
        common = os.path.commonprefix(list(ctype.relements))
        start = common.rfind("_") + 1
        names = {e[start:].lower(): int(v) for e, v in ctype.relements.items()}
        if value.lower().replace("-", "_") not in names:
            raise ValueError(f"{name} '{value}'; valid: {', '.join(sorted(names))}")
        return names[value.lower().replace("-", "_")]
    if isinstance(value, bool):
        raise TypeError(f"{name} is a str, not {value}")
    return whole(value, name)


def as_init(init: Any) -> Any:
    """The clv_init of "zeros", "ones", or a pair: ("normal", 0.02), ("uniform", 0.1), ("lecun_normal", fan_in)."""
    pair = (init, 0.0) if isinstance(init, str) else init
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f'init is "zeros", "ones", or a pair such as ("normal", 0.02), not {init!r}')
    kind, scale = pair
    found = enum_value(ffi.typeof("clv_init_kind"), kind, "an initializer")
    return ffi.new("clv_init *", {"kind": found, "scale": float(scale)})[0]


def fill(kept: Kept, values: dict[str, Any], what: str) -> None:
    """Sets fields of a struct; nested structs by dicts."""
    _fill(kept, kept.struct, ffi.typeof(kept.struct[0]), values, what)


def _is_callback(name: str, ctype: Any) -> bool:
    """Whether a field is a callback, its argument, or reserved: Python callers cannot set it."""
    return name == "reserved" or ctype.kind == "function" or (ctype.kind == "pointer" and ctype.item.kind == "void")


def options(
    kind: str, values: dict[str, Any], what: str, without: tuple[str, ...] = (), beside: tuple[str, ...] = (),
    **more: Any,
) -> Kept:  # fmt: skip
    """A zeroed struct with these fields and its `size` set. without: fields that `values` may not name, like those of
    `more`; beside: further names to list as valid."""
    ctype = ffi.typeof(kind)
    fields, kept = dict(ctype.fields), Kept(ffi.new(kind + " *"))
    compiled = dict(fields["compile"].type.fields) if "compile" in fields else {}  # keywords of the struct in it
    known = {**compiled, **fields}
    calls = [name for name, field in known.items() if _is_callback(name, field.type)]
    for name in values:
        _field(known, name, what, (*without, *more, *calls, "compile"), beside)
    if "size" in fields:
        kept.struct.size = ffi.sizeof(ctype)
    given = {**values, **more}
    _fill(kept, kept.struct, ctype, {n: v for n, v in given.items() if n in fields}, what)
    if compiled:
        inner = {n: v for n, v in given.items() if n not in fields}
        _fill(kept, kept.struct.compile, fields["compile"].type, inner, what)
    return kept


def given(values: dict[str, Any]) -> dict[str, Any]:
    """The items that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def summed_in(dtype: Any) -> dict[str, Any]:
    """Option fields for the dtype of gradient reductions."""
    return {"grad_reduce_dtype": dtype, "f32_gradients": isinstance(dtype, str) and dtype.lower() == "f32"}


def lora(given: Any) -> Kept | None:
    """clv_lora_options from a folder of adapters, or a dict of rank, alpha and targets (a list of names or a str)."""
    if given is None:
        return None
    values = dict(given) if isinstance(given, dict) else {"folder": given}
    targets = values.get("targets")
    if isinstance(targets, (list, tuple)):
        values["targets"] = ",".join(c_str(t, "a target").decode() for t in targets)
    return options("clv_lora_options", values, "lora")


def filled(kind: str, function: Callable[..., int], *arguments: Any) -> Any:
    """A struct with a `size` that the library fills: function(*arguments, &struct, &err)."""
    out = ffi.new(kind + " *")
    out.size = ffi.sizeof(kind)
    check(function, *arguments, out)
    return out


def fields(struct: Any) -> dict[str, Any]:
    """Numbers and texts of a struct as a dict."""
    found = {}
    for name, field in ffi.typeof(struct[0]).fields:
        if name != "size" and (field.type.kind in ("primitive", "enum") or field.type.cname == "char *"):
            value = getattr(struct, name)
            found[name] = py_str(value) if isinstance(value, ffi.CData) else value
    return found


def c_strs(texts: Iterable[Any], what: str) -> tuple[Any, list[Any]]:
    """A const char *[] and the list that keeps it alive."""
    kept = [ffi.new("char[]", c_str(t, what)) for t in several(texts, what)]
    return ffi.new("const char *[]", kept), kept
