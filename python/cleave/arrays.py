"""Input and output arrays: NumPy and DLPack (torch, JAX, CuPy on the host), without copies."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._c import DTYPES, dtype_name
from ._cleave import ffi, lib

try:
    import ml_dtypes

    bfloat16: Any = np.dtype(ml_dtypes.bfloat16)
except ImportError:  # then the bits, as uint16
    bfloat16 = np.dtype(np.uint16)

__all__ = ["bfloat16", "dlpack", "numpy_dtype"]

_NUMPY = {
    "f32": np.dtype(np.float32), "bf16": bfloat16, "f64": np.dtype(np.float64), "f16": np.dtype(np.float16),
    "i32": np.dtype(np.int32), "i64": np.dtype(np.int64), "u8": np.dtype(np.uint8), "bool": np.dtype(np.bool_),
}  # fmt: skip


def numpy_dtype(code: int) -> Any:
    """The NumPy dtype of a clv_dtype."""
    return _NUMPY[dtype_name(code)]


# ---- DLPack's bfloat16, which NumPy does not know: its bits are lent as uint16 ----

_UINT, _BFLOAT, _CPU = 1, 4, 1


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):  # DLTensor of dlpack.h, its first fields
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("dtype", _Type),
    ]  # fmt: skip


def _pointer(capsule: Any, name: bytes) -> int | None:
    """The pointer in a capsule of this name; None for another name."""
    is_valid, get = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
    is_valid.restype, is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, name) if is_valid(capsule, name) else None


def _type_in(capsule: Any) -> _Type:
    at = _pointer(capsule, b"dltensor")
    if at is None:
        raise BufferError("not a DLPack capsule")
    tensor = _Tensor.from_address(at)
    dtype: _Type = tensor.dtype
    return dtype


class _BorrowedCapsule:
    """Wraps a capsule for numpy.from_dlpack."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0


def from_dlpack(tensor: Any, what: str) -> Any:
    """An array that shares a tensor's memory."""
    device = tensor.__dlpack_device__()
    if int(device[0]) != _CPU:
        raise TypeError(f"{what} lies on a device of kind {int(device[0])}; programs run on the CPU: move it there")
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError):
        capsule = tensor.__dlpack__()
        dtype = _type_in(capsule)
        if dtype.code != _BFLOAT or dtype.bits != 16 or dtype.lanes != 1:
            raise
        dtype.code = _UINT
        return np.from_dlpack(_BorrowedCapsule(capsule)).view(bfloat16)


def _writable(array: Any, tensor: Any) -> Any:
    """A writable view of an array that numpy.from_dlpack made of a tensor. NumPy makes read-only views if the DLPack of
    the tensor is too old to have the flag; if it has the flag, the array stays read-only."""
    if array.flags.writeable:
        return array
    try:
        says = _pointer(tensor.__dlpack__(max_version=(1, 0)), b"dltensor_versioned") is not None
    except (TypeError, BufferError):
        says = False
    if says or isinstance(array.base, np.ndarray) or array.size == 0:
        return array
    interface = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}
    holder = type("Lent", (), {"__array_interface__": interface, "array": array})()
    return np.asarray(holder)


class dlpack:  # noqa: N801  it reads as a function
    """Exports an array by DLPack, with the dtype bfloat16: ``torch.from_dlpack(cleave.dlpack(array))``."""

    def __init__(self, array: Any) -> None:
        self._array = np.asarray(array)
        if self._array.dtype.name == "bfloat16" and bfloat16 == np.uint16:
            raise TypeError("this array's bfloat16 is not ml_dtypes'")

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0

    def __dlpack__(self, **_: Any) -> Any:
        if self._array.dtype.name != "bfloat16":
            return self._array.__dlpack__()
        capsule = self._array.view(np.uint16).__dlpack__()
        _type_in(capsule).code = _BFLOAT
        return capsule


# ---- arguments of library calls ----


def _convert(values: Any, code: int, what: str) -> Any:
    """Numbers and lists as an array of a clv_dtype."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{what} holds {array.dtype}; numbers are wanted")
    wanted = numpy_dtype(code)
    is_float = dtype_name(code) in ("f32", "bf16", "f64", "f16")
    if array.dtype.kind == "f" and not is_float and array.size:
        raise TypeError(f"{what} holds fractions, {dtype_name(code)} is wanted")
    if code == DTYPES["bf16"]:
        wide = np.ascontiguousarray(array, np.float64)
        out = np.empty(array.shape, np.uint16)
        lib.clv_dtype_convert(code, address(out), DTYPES["f64"], address(wide), wide.size)
        return out.view(bfloat16)
    if array.dtype.kind in "iu" and not is_float and array.size and dtype_name(code) != "bool":
        limits = np.iinfo(wanted)
        if array.min() < limits.min or array.max() > limits.max:
            raise OverflowError(f"{what} holds numbers beyond {dtype_name(code)}")
    return array.astype(wanted)


def _as_array(value: Any, code: int, what: str) -> Any:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array, whose mask would be lost: .filled(...) first")
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value, what)
    if hasattr(value, "__array__"):
        return np.asarray(value)
    return _convert(value, code, what)


def _check_dtype(array: Any, code: int, what: str) -> None:
    wanted = numpy_dtype(code)
    is_bf16 = code == DTYPES["bf16"] and (array.dtype.name == "bfloat16" or array.dtype == np.uint16)
    if is_bf16:
        return
    if code == DTYPES["bf16"]:
        how = ".astype(ml_dtypes.bfloat16), or .tolist(), or bfloat16's bits as uint16"
        raise TypeError(f"{what} is {array.dtype}, bf16 is wanted: {how}")
    if array.dtype != wanted:
        raise TypeError(f"{what} is {array.dtype}, {wanted} is wanted ({dtype_name(code)}): .astype('{wanted}')")


def _check_shape(array: Any, shape: Sequence[int], what: str) -> None:
    if array.shape != tuple(shape):
        raise ValueError(f"{what} has shape {array.shape}, {tuple(shape)} is wanted")


def address(array: Any) -> Any:
    """The memory of an array as a void *; the caller keeps the array alive."""
    return ffi.cast("void *", array.__array_interface__["data"][0])


def as_input_array(value: Any, code: int, shape: Sequence[int], what: str) -> Any:
    """A C-contiguous array of this dtype and shape: the value itself if it is one. Numbers and lists are converted;
    arrays are not."""
    array = _as_array(value, code, what)
    _check_dtype(array, code, what)
    _check_shape(array, shape, what)
    return array if array.flags.c_contiguous else array.copy("C")


def as_output_array(given: Any, code: int, shape: Sequence[int], what: str) -> tuple[Any, Any]:
    """The array to return, and the C-contiguous array to write, which are the same if possible. given: the caller's
    array; None: a new one."""
    if given is None:
        made = np.empty(tuple(shape), numpy_dtype(code))
        return made, made
    array = given if isinstance(given, np.ndarray) else None
    if array is None and hasattr(given, "__dlpack__"):
        array = _writable(from_dlpack(given, what), given)
    if array is None:
        raise TypeError(f"{what} is to be an array that can be written, not {type(given).__name__}")
    if not array.flags.writeable:
        raise ValueError(f"{what} cannot be written")
    _check_dtype(array, code, what)
    _check_shape(array, shape, what)
    return array, array if array.flags.c_contiguous else np.empty(tuple(shape), array.dtype)


def ndim(values: Any, what: str) -> int:
    """Number of dimensions of nested lists."""
    try:
        return int(np.ndim(values))
    except ValueError:
        raise ValueError(f"{what} are rows of different lengths: pad them, and give a mask (1 = a token)") from None


def as_ids(values: Any, what: str = "ids") -> Any:
    """Token ids as an i32 array [batch, tokens]."""
    ndim(values, what)
    array = _as_array(values, DTYPES["i64"], what)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what} are whole numbers, not {array.dtype}")
    if array.ndim != 2:
        raise ValueError(f"{what} have {array.ndim} dimensions, [batch, tokens] is wanted")
    limits = np.iinfo(np.int32)
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        raise OverflowError(f"{what} hold numbers beyond 32 bits")
    return np.ascontiguousarray(array, np.int32)
