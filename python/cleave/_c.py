"""From Python's values to C's and back. What the library's structs hold is read from its headers (cffi), and stated
nowhere here."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable
from typing import Any

from ._cleave import ffi, lib
from .errors import check, text_out

NULL = ffi.NULL
MAX_RANK = lib.CLV_MAX_RANK


def text_in(text: Any, what: str = "a text") -> bytes:
    """UTF-8 for a C string."""
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
    """A whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is a whole number, not {type(value).__name__}") from None


def wholes(values: Any, what: str) -> tuple[int, ...]:
    """Whole numbers, given as one or as several."""
    try:
        return (operator.index(values),)
    except TypeError:
        if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
            raise TypeError(f"{what} is a whole number, not {type(values).__name__}") from None
    return tuple(whole(value, what) for value in values)


def real(value: Any, what: str) -> float:
    """A number."""
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise TypeError(f"{what} is a number, not {type(value).__name__}")
    return float(value)


def several(texts: Any, what: str) -> list[Any]:
    """Texts of a list, or whatever else has some."""
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise TypeError(f"{what} is a str, or there is a list of them, not {type(texts).__name__}")
    return list(texts)


class Fixed:
    """What has attributes that bounds are checked by: they are set once."""

    __slots__ = ()
    _fixed: tuple[str, ...] = ("mesh",)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._fixed and hasattr(self, name):
            raise AttributeError(f"{type(self).__name__}.{name} is read-only")
        object.__setattr__(self, name, value)


def printed(function: Callable[..., int], *arguments: Any) -> str:
    """What a function writes that writes as snprintf does."""
    needed = function(NULL, 0, *arguments)
    buffer = ffi.new("char[]", max(needed, 0) + 1)
    function(buffer, len(buffer), *arguments)
    return text_out(buffer)


def milliseconds(timeout: Any) -> int:
    """Of a number of seconds."""
    seconds = real(timeout, "timeout")
    if not 0 < seconds <= 1e9:
        raise ValueError(f"timeout is {timeout!r}; valid: seconds, more than 0 and at most 1e9")
    return max(1, round(1000 * seconds))


def shape_in(shape: Any) -> tuple[int, ...]:
    """A shape, given as sizes or as one size."""
    sizes = wholes(shape, "a size")
    if len(sizes) > MAX_RANK:
        raise ValueError(f"a tensor of {len(sizes)} dimensions; valid: at most {MAX_RANK}")
    return sizes


def shape_out(array: Any, rank: int) -> tuple[int, ...]:
    """The sizes that C holds."""
    return tuple(array[d] for d in range(rank))


# ---- dtypes ----

DTYPES: dict[str, int] = {text_out(lib.clv_dtype_name(code)): code for code in range(lib.CLV_DTYPE_COUNT)}
_DTYPE_NAMES = {code: name for name, code in DTYPES.items()}
_NUMPY_NAMES = {
    "float32": "f32", "bfloat16": "bf16", "float64": "f64", "float16": "f16",
    "int32": "i32", "int64": "i64", "uint8": "u8", "bool": "bool",
}  # fmt: skip


def dtype_in(dtype: Any) -> int:
    """A clv_dtype of "f32", "float32", numpy.float32, torch.float32, ..."""
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
    check(lib.clv_dtype_parse, out, text_in(_NUMPY_NAMES.get(name, name), "a dtype"))
    return int(out[0])


def dtype_out(code: int) -> str:
    """The name of a clv_dtype."""
    return _DTYPE_NAMES[code]


# ---- structs by their fields ----


class Kept:
    """A struct, and what its pointers point to."""

    def __init__(self, struct: Any) -> None:
        self.struct = struct
        self.kept: list[Any] = []


def _field(
    fields: dict[str, Any], name: str, what: str, without: tuple[str, ...] = (), beside: tuple[str, ...] = ()
) -> Any:
    """A field that may be set; beside: what else may be said."""
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
            value = init_in(value)
        elif field.type.cname == "struct clv_key" and not isinstance(value, ffi.CData):
            value = lib.clv_key_seed(whole(value, name))
        elif field.type.cname == "char *" and not isinstance(value, ffi.CData):
            value = ffi.new("char[]", text_in(value, name))
        elif field.type.kind == "enum":
            value = enum_in(field.type, value, name)
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


def enum_in(ctype: Any, value: Any, name: str) -> int:
    """An enumerator by its name without what all of its kind begin with: "silu" is CLV_SILU, "normal"
    CLV_INIT_NORMAL."""
    if ctype.cname in ("clv_dtype", "enum clv_dtype"):
        return dtype_in(value)
    if isinstance(value, str):
        common = os.path.commonprefix(list(ctype.relements))
        start = common.rfind("_") + 1
        names = {e[start:].lower(): int(v) for e, v in ctype.relements.items()}
        if value.lower().replace("-", "_") not in names:
            raise ValueError(f"{name} '{value}'; valid: {', '.join(sorted(names))}")
        return names[value.lower().replace("-", "_")]
    return whole(value, name)


def init_in(init: Any) -> Any:
    """A clv_init of "zeros", "ones", or a pair: ("normal", 0.02), ("uniform", 0.1), ("lecun_normal", fan_in)."""
    pair = (init, 0.0) if isinstance(init, str) else init
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f'init is "zeros", "ones", or a pair such as ("normal", 0.02), not {init!r}')
    kind, scale = pair
    found = enum_in(ffi.typeof("clv_init_kind"), kind, "an initializer")
    return ffi.new("clv_init *", {"kind": found, "scale": float(scale)})[0]


def fill(kept: Kept, values: dict[str, Any], what: str) -> None:
    """Sets fields of a struct; those of structs in it by dicts."""
    _fill(kept, kept.struct, ffi.typeof(kept.struct[0]), values, what)


def _is_callback(name: str, ctype: Any) -> bool:
    """What C calls, or hands to what it calls, and room for later: nothing that a caller sets from here."""
    return name == "reserved" or ctype.kind == "function" or (ctype.kind == "pointer" and ctype.item.kind == "void")


def options(
    kind: str, values: dict[str, Any], what: str, without: tuple[str, ...] = (), beside: tuple[str, ...] = (),
    **more: Any,
) -> Kept:  # fmt: skip
    """A zeroed struct with these fields set, and its size where it tells one. without: fields that `values` may not
    name, as those of `more`; beside: what else the caller may be told."""
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
    """Those that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def summed_in(dtype: Any) -> dict[str, Any]:
    """Fields by what gradients are summed in: those of 16 bits are f32 where that is said."""
    return {"grad_reduce_dtype": dtype, "f32_gradients": isinstance(dtype, str) and dtype.lower() == "f32"}


def lora(given: Any) -> Kept | None:
    """clv_lora_options of a folder of adapters, or of a rank, alpha and targets, which may be a list of names."""
    if given is None:
        return None
    values = dict(given) if isinstance(given, dict) else {"folder": given}
    targets = values.get("targets")
    if isinstance(targets, (list, tuple)):
        values["targets"] = ",".join(text_in(t, "a target").decode() for t in targets)
    return options("clv_lora_options", values, "lora")


def filled(kind: str, function: Callable[..., int], *arguments: Any) -> Any:
    """A struct that the library fills and whose size it is told: function(*arguments, &struct, &err)."""
    out = ffi.new(kind + " *")
    out.size = ffi.sizeof(kind)
    check(function, *arguments, out)
    return out


def fields(struct: Any) -> dict[str, Any]:
    """Numbers and texts of a struct that the library filled."""
    found = {}
    for name, field in ffi.typeof(struct[0]).fields:
        if name != "size" and (field.type.kind in ("primitive", "enum") or field.type.cname == "char *"):
            value = getattr(struct, name)
            found[name] = text_out(value) if isinstance(value, ffi.CData) else value
    return found


def words(texts: Iterable[Any], what: str) -> tuple[Any, list[Any]]:
    """const char *[] and what keeps it alive."""
    kept = [ffi.new("char[]", text_in(t, what)) for t in several(texts, what)]
    return ffi.new("const char *[]", kept), kept
