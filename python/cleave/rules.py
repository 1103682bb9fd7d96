"""Rules: over which axes of a mesh the named dimensions of a model (batch, heads, ...) are split."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Union

from ._c import NULL, ReadOnly, c_str, whole
from ._cleave import ffi, lib
from ._handle import ProcessLocal
from .errors import check, py_str
from .mesh import Layout, Mesh, MeshLike, as_mesh

#: A preset ("megatron-sp"), a file of rules, pairs such as [("batch", "data"), ("heads", ("model",))], or None: the
#: default.
RulesLike = Union["Rules", str, "os.PathLike[str]", Sequence[Any], None]


class Rules(ReadOnly, ProcessLocal):
    """``Rules(mesh, "megatron-sp")``, ``Rules(mesh, "rules.json")``, or ``Rules(mesh, [("batch", "data"), ("seq",
    None)])``.

    None is megatron, over those of the axes data and model that the mesh has; optimizer: axes that optimizer state is
    split over beyond its parameter.
    """

    def __init__(self, mesh: MeshLike, rules: RulesLike = None, optimizer: Sequence[str] = ()) -> None:
        self.mesh = as_mesh(mesh)
        self._rules = ffi.new("clv_axis_rules *")
        if isinstance(rules, Rules):
            if rules.mesh != self.mesh:
                raise ValueError(f"rules for {rules.mesh!r}; here the mesh is {self.mesh!r}")
            self._rules[0] = rules._rules[0]
        elif rules is None:
            check(lib.clv_axis_rules_preset, self._rules, NULL, self.mesh._mesh)
        elif isinstance(rules, (str, os.PathLike)):
            is_file = isinstance(rules, os.PathLike) or os.sep in rules or rules.endswith(".json")
            read = lib.clv_axis_rules_read if is_file else lib.clv_axis_rules_preset
            check(read, self._rules, c_str(rules), self.mesh._mesh)
        else:
            if not isinstance(rules, Sequence) or not all(isinstance(pair, (list, tuple)) for pair in rules):
                raise TypeError(f'rules are a preset, a file, or pairs such as ("batch", "data"), not {rules!r:.60}')
            text = json.dumps({"rules": [list(pair) for pair in rules], "optimizer": list(optimizer)}).encode()
            check(lib.clv_axis_rules_parse, self._rules, text, len(text), self.mesh._mesh, b"rules")

    @property
    def name(self) -> str:
        """The preset's, or the file's."""
        return py_str(self._rules.name)

    def layout(self, names: Sequence[str | None]) -> Layout:
        """Layout of a tensor with these dimension names (None: not sharded): ``rules.layout(("batch", "seq",
        "embed"))``."""
        kept = [NULL if n is None else ffi.new("char[]", c_str(n, "a name")) for n in names]
        out = ffi.new("clv_layout *")
        given = ffi.new("clv_logical_axis[]", kept or 1)
        check(lib.clv_axis_rules_layout, out, self._rules, self.mesh._mesh, len(kept), given)
        return Layout._of(self.mesh, out[0])

    def __repr__(self) -> str:
        return f"<cleave.Rules {self.name or 'of one list'} on {self.mesh}>"


def parallel(tp: Any, mesh: MeshLike, rules: RulesLike, sp: bool = False) -> tuple[Mesh, Rules]:
    """The mesh and rules that tp=2, mesh=..., rules=..., sp=... ask for."""
    if tp is not None and mesh is not None:
        raise ValueError("give tp or mesh, not both")
    if sp and rules is not None:
        raise ValueError("sp is of the default rules; give rules='megatron-sp'")
    found = as_mesh(mesh) if mesh is not None else Mesh({"model": 1 if tp is None else whole(tp, "tp: a size")})
    return found, Rules(found, "megatron-sp" if sp else rules)


__all__ = ["Rules", "RulesLike", "parallel"]
