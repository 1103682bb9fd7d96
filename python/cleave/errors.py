"""Exceptions: one for each status of the library, with its message.

Each is a :class:`CleaveError` and the matching built-in exception.
"""

from __future__ import annotations

from typing import Any

from ._cleave import ffi, lib

__all__ = [
    "CleaveError", "InvalidError", "ShapeError", "DtypeError", "LayoutSyntaxError", "AxisError", "LimitError",
    "OutOfMemoryError", "FileError", "FormatError", "NotFoundError", "ExistsError", "UnsupportedError",
    "PeerError", "DeadlineError", "NotFiniteError", "CheckError", "CancelledError",
]  # fmt: skip


class CleaveError(Exception):
    """A failure of the library.

    ``status`` is its short name ("shape"), ``rank`` the rank that failed (-1: none), ``op`` the op ("": none).
    """

    status = "unknown"

    def __init__(self, message: str, rank: int = -1, op: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.rank = rank
        self.op = op

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.rank, self.op)


class InvalidError(CleaveError, ValueError):
    """An argument is out of its range."""

    status = "invalid"


class ShapeError(CleaveError, ValueError):
    """Shapes do not fit together."""

    status = "shape"


class DtypeError(CleaveError, TypeError):
    """A dtype is unknown or not accepted here."""

    status = "dtype"


class LayoutSyntaxError(CleaveError, ValueError):
    """A text form could not be parsed."""

    status = "syntax"


class AxisError(CleaveError, ValueError):
    """A mesh axis is unknown or used twice."""

    status = "axis"


class LimitError(CleaveError, ValueError):
    """A documented limit is exceeded."""

    status = "limit"


class OutOfMemoryError(CleaveError, MemoryError):
    """Memory could not be allocated."""

    status = "memory"


class FileError(CleaveError, OSError):
    """A file could not be read or written."""

    status = "io"


class FormatError(CleaveError, ValueError):
    """A file does not follow its format."""

    status = "format"


class NotFoundError(CleaveError, FileNotFoundError, KeyError):
    """A name, or a file, does not exist."""

    status = "not-found"


class ExistsError(CleaveError, FileExistsError):
    """A name exists already."""

    status = "exists"


class UnsupportedError(CleaveError, NotImplementedError):
    """Valid, but not supported."""

    status = "unsupported"


class PeerError(CleaveError, RuntimeError):
    """Another rank failed."""

    status = "peer"


class DeadlineError(CleaveError, TimeoutError):
    """A deadline passed."""

    status = "timeout"


class NotFiniteError(CleaveError, ArithmeticError):
    """A value is infinite or not a number."""

    status = "not-finite"


class CheckError(CleaveError, RuntimeError):
    """An op does not do what it says, or touched memory that is not its own."""

    status = "check"


class CancelledError(CleaveError, RuntimeError):
    """The caller asked to end."""

    status = "cancelled"


def py_str(pointer: Any) -> str:
    """A C string as a str."""
    return str(ffi.string(pointer).decode("utf-8", "replace")) if pointer else ""


_CLASSES = {kind.status: kind for kind in CleaveError.__subclasses__()}


def exception_of(err: Any) -> CleaveError:
    """The exception of a filled clv_error."""
    kind = _CLASSES.get(py_str(lib.clv_status_name(err.code)), CleaveError)
    return kind(py_str(err.message), err.rank, py_str(err.op))


def check(function: Any, *arguments: Any) -> None:
    """Calls a function that returns a clv_status and takes a clv_error last; raises its failure."""
    err = ffi.new("clv_error *")
    if function(*arguments, err):
        raise exception_of(err)
