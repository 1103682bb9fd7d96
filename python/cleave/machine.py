"""Machines: what layouts are priced by, and the time of a program is predicted for. No such machine need be at hand."""

from __future__ import annotations

from typing import Any, Union

from . import _c
from ._c import NULL, dtype_in, text_in
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from .errors import check, text_out


class Machine(ProcessLocal):
    """A profile: the path of one that ``cleave bench profile`` wrote, or the name of one that the library has
    (:func:`machines`).

    ``Machine()`` is none in particular: cores of one host, of which only the ratios mean something.
    """

    def __init__(self, profile: Any = None) -> None:
        self._handle: Handle | None = None
        if profile is not None:
            out = ffi.new("clv_machine **")
            check(lib.clv_machine_open, out, text_in(profile, "a machine's profile"))
            self._handle = Handle(out[0], lib.clv_machine_free, "machine")

    def _call(self, function: Any) -> Any:
        """function of the clv_machine."""
        if self._handle is None:
            return function(NULL)
        with self._handle.use() as machine:
            return function(machine)

    @property
    def info(self) -> dict[str, Any]:
        """Its name, ranks_per_host, hosts (0: any number), memory_bytes of a rank, rates."""
        found = self._call(lambda m: _c.filled("clv_machine_info", lib.clv_machine_get_info, m))
        return _c.fields(found)

    @property
    def name(self) -> str:
        """What its profile calls it."""
        return str(self.info["name"])

    def flops(self, dtype: Any = "f32") -> float:
        """Peak flops per second of a rank."""
        return float(self._call(lambda m: lib.clv_machine_flops(m, dtype_in(dtype))))

    def __repr__(self) -> str:
        return f"<cleave.Machine {self.name}>"


#: A machine, its profile's path, the name of one that the library has, or None: none in particular.
MachineLike = Union[Machine, str, None]


def as_machine(machine: MachineLike) -> Machine:
    """The machine that is meant."""
    return machine if isinstance(machine, Machine) else Machine(machine)


def machines() -> list[str]:
    """The names of the profiles that the library has."""
    names: list[str] = []
    while (name := lib.clv_machine_builtin_name(len(names))) != NULL:
        names.append(text_out(name))
    return names
