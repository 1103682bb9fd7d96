"""Machines: hardware profiles for layout costs and predicted times."""

from __future__ import annotations

from typing import Any, Union

from . import _c
from ._c import NULL, dtype_code, c_str
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from .errors import check, py_str


class Machine(ProcessLocal):
    """A hardware profile: a path that ``cleave bench profile`` wrote, or the name of a built-in one (:func:`machines`).

    software: an entry of the profile's "software": what another program reaches on the machine ("pytorch").
    ``Machine()`` is a generic host: only ratios of its costs are meaningful.
    """

    def __init__(self, profile: Any = None, software: str | None = None) -> None:
        self._handle: Handle | None = None
        if profile is not None:
            out = ffi.new("clv_machine **")
            stack = NULL if software is None else c_str(software, "a profile's software")
            check(lib.clv_machine_open, out, c_str(profile, "a machine's profile"), stack)
            self._handle = Handle(out[0], lib.clv_machine_free, "machine")

    def _call(self, function: Any) -> Any:
        """function(clv_machine *), NULL for the generic host."""
        if self._handle is None:
            return function(NULL)
        with self._handle.shared() as machine:
            return function(machine)

    @property
    def info(self) -> dict[str, Any]:
        """Name, ranks_per_host, hosts (0: any number), memory_bytes a rank, rates."""
        found = self._call(lambda m: _c.filled("clv_machine_info", lib.clv_machine_get_info, m))
        return _c.fields(found)

    @property
    def name(self) -> str:
        """Name of the profile."""
        return str(self.info["name"])

    def flops(self, dtype: Any = "f32") -> float:
        """Peak flop/s of a rank."""
        return float(self._call(lambda m: lib.clv_machine_flops(m, dtype_code(dtype))))

    def __repr__(self) -> str:
        return f"<cleave.Machine {self.name}>"


#: A machine, the path of a profile, the name of a built-in one, or None: a generic host.
MachineLike = Union[Machine, str, None]


def as_machine(machine: MachineLike) -> Machine:
    """A Machine of any MachineLike."""
    return machine if isinstance(machine, Machine) else Machine(machine)


def machines() -> list[str]:
    """Names of the built-in profiles."""
    names: list[str] = []
    while (name := lib.clv_machine_builtin_name(len(names))) != NULL:
        names.append(py_str(name))
    return names
