"""Programs of others: JAX functions, and StableHLO text, on any mesh."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _c
from ._c import NULL, c_str, dtype_code
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from .arrays import address, numpy_dtype
from .errors import check, py_str
from .graph import Graph
from .mesh import Mesh, MeshLike
from .program import Program, compile
from .session import Session


class Imported(_c.ReadOnly, ProcessLocal):
    """A program of StableHLO text, compiled for a mesh (None: the text's own, or one rank).

    ``imported(*arrays)`` runs it on the arguments in order, ``imported.run({name: array})`` by name.
    ``imported.program`` is planned and listed as any other :class:`cleave.Program`.
    """

    def __init__(self, text: str, mesh: MeshLike = None, *, name: str = "program", **options: Any) -> None:
        data = c_str(text, "a program")
        out = ffi.new("clv_import **")
        check(lib.clv_import_parse, out, data, len(data), c_str(name, "a name"))
        self._handle = Handle(out[0], lib.clv_import_free, "program of StableHLO text")
        own = ffi.new("clv_mesh *")
        with self._handle.exclusive() as pointer:
            if mesh is None and lib.clv_import_mesh(pointer, own):
                mesh = Mesh(_c.print_to_string(lib.clv_mesh_print, own))
            graph = Graph(mesh)
            with graph._handle.exclusive() as made:
                check(lib.clv_import_stablehlo, made, pointer, NULL)
            #: What is wrong with its shard_map: one line each.
            self.faults: list[str] = []
            while (
                fault := _c.filled("clv_import_fault_info", lib.clv_import_fault, pointer, len(self.faults))
            ).kind != NULL:
                self.faults.append(": ".join(py_str(s) for s in (fault.kind, fault.tensor, fault.text)))
            self.names: list[str] = []
            i = 0
            while (port := _c.filled("clv_import_port_info", lib.clv_import_port, pointer, i)).name != NULL:
                if not port.is_result:
                    self.names.append(py_str(port.name))
                i += 1
        self.mesh = graph.mesh
        self.program: Program = compile(graph, **options)
        self._session: list[Session] = []

    def _ready(self) -> Session:
        """The session, with the constants of the program."""
        if not self._session:
            session = Session(self.mesh)
            session.load(self.program)
            for state in session.states.values():
                if state.name.startswith("constant."):
                    session.write(state.name, self._constant(state.name, state.dtype, state.shape))
            self._session.append(session)
        return self._session[0]

    def _constant(self, name: str, dtype: str, shape: tuple[int, ...]) -> Any:
        array = np.empty(shape, numpy_dtype(dtype_code(dtype)))
        kind = ffi.new("clv_type *", {"dtype": dtype_code(dtype), "rank": len(shape), "shape": list(shape)})
        box = ffi.new("clv_shard *", {"rank": len(shape), "hi": list(shape)})
        known = ffi.new("int *")
        with self._handle.exclusive() as pointer:
            check(lib.clv_import_constant, pointer, c_str(name), kind, box, address(array), known)
        return array

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The results by name, of arguments by name."""
        return self._ready().run(self.program, inputs)

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results in order, of the arguments in order."""
        if len(arrays) != len(self.names):
            raise TypeError(f"{len(arrays)} arrays; the program has {len(self.names)}: {', '.join(self.names)}")
        return list(self.run(dict(zip(self.names, arrays))).values())


def from_jax(f: Any, *args: Any, mesh: MeshLike = None, **options: Any) -> Imported:
    """A JAX function as it is lowered for arguments of these shapes (arrays, or ``jax.ShapeDtypeStruct``), on any mesh.

    The arguments of the result are the leaves of args, in JAX's order: ``imported(*jax.tree.leaves((x, y)))``.
    """
    jax = importlib.import_module("jax")

    text = jax.jit(f, keep_unused=True).lower(*args).as_text(debug_info=True)
    found = re.search(r"module @(\w+)", text)
    return Imported(text, mesh, name=found.group(1) if found else "jax", **options)
