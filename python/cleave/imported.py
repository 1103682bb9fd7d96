"""Programs of others on any mesh: JAX functions and StableHLO text, PyTorch modules that torch.export has exported."""

from __future__ import annotations

import importlib
import io
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


def _plain(value: Any) -> Any:
    """A jax.Array as one of NumPy, also of several devices; a key's numbers; ui32 and ui64 in i64, which holds them."""
    if str(getattr(value, "dtype", "")).startswith("key<"):
        value = importlib.import_module("jax").random.key_data(value)
    array = np.asarray(value) if hasattr(value, "addressable_shards") else value
    unsigned = isinstance(array, (np.ndarray, np.generic)) and array.dtype.name in ("uint32", "uint64")
    return array.astype(np.int64) if unsigned else array


class Imported(_c.ReadOnly, ProcessLocal):
    """A program (StableHLO text, or the bytes of what ``torch.export.save`` writes), compiled for a mesh (None: the
    text's own, or one rank).

    ``imported(*arrays)`` runs it on the arguments in order, ``imported.run({name: array})`` by name.
    ``imported.program`` is planned and listed as any other :class:`cleave.Program`.

    layouts: of arguments, parameters and results by name, ``{"*.q_proj.weight": "model,_"}``; ``*`` stands for any
    characters, and the first that fits counts. gradients: results ``grad.NAME`` for each parameter, of the result of
    this name, or, with True, of the only float scalar.
    """

    def __init__(
        self,
        text: str | bytes,
        mesh: MeshLike = None,
        *,
        layouts: Mapping[str, str] | None = None,
        gradients: str | bool = False,
        name: str = "program",
        **options: Any,
    ) -> None:
        data = text if isinstance(text, bytes) else c_str(text, "a program")
        out = ffi.new("clv_import **")
        check(lib.clv_import_parse, out, ffi.from_buffer(data), len(data), c_str(name, "a name"))
        self._handle = Handle(out[0], lib.clv_import_free, "imported program")
        own = ffi.new("clv_mesh *")
        of = c_str(gradients if isinstance(gradients, str) else "", "the name of a result")
        how = ffi.new("clv_import_options *", {"gradients_of": NULL if gradients is False else ffi.from_buffer(of)})
        how.size = ffi.sizeof("clv_import_options")
        with self._handle.exclusive() as pointer:
            for names, layout in (layouts or {}).items():
                check(lib.clv_import_layout, pointer, c_str(names, "a name"), c_str(layout, "a layout"))
            if mesh is None and lib.clv_import_mesh(pointer, own):
                mesh = Mesh(_c.print_to_string(lib.clv_mesh_print, own))
            graph = Graph(mesh)
            with graph._handle.exclusive() as made:
                check(lib.clv_import_stablehlo, made, pointer, how)
            #: What is wrong with its shard_map: one line each.
            self.faults: list[str] = []
            while (
                fault := _c.filled("clv_import_fault_info", lib.clv_import_fault, pointer, len(self.faults))
            ).kind != NULL:
                self.faults.append(": ".join(py_str(s) for s in (fault.kind, fault.tensor, fault.text)))
            self.names: list[str] = []
            i = 0
            info = "clv_import_argument_or_result_info"
            while (port := _c.filled(info, lib.clv_import_argument_or_result, pointer, i)).name != NULL:
                if not port.is_result and not port.is_state and not port.is_constant:
                    self.names.append(py_str(port.name))
                i += 1
        self.mesh = graph.mesh
        self.program: Program = compile(graph, **options)
        self._session: list[Session] = []

    def _ready(self) -> Session:
        """The session, with the parameters and constants of the program."""
        if not self._session:
            session = Session(self.mesh)
            session.load(self.program)
            for state in session.states.values():
                session.write(state.name, self._constant(state.name, state.dtype, state.shape))
            self._session.append(session)
        return self._session[0]

    def _constant(self, name: str, dtype: str, shape: tuple[int, ...]) -> Any:
        array = np.empty(shape, numpy_dtype(dtype_code(dtype)))
        kind = ffi.new("clv_type *", {"dtype": dtype_code(dtype), "rank": len(shape), "shape": list(shape)})
        box = ffi.new("clv_shard *", {"rank": len(shape), "hi": list(shape)})
        known = ffi.new("int *")
        with self._handle.exclusive() as pointer:
            check(lib.clv_import_state_source, pointer, c_str(name), kind, box, address(array), known)
        return array

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The results by name, of arguments by name."""
        return self._ready().run(self.program, {name: _plain(value) for name, value in inputs.items()})

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results in order, of the arguments in order."""
        if len(arrays) != len(self.names):
            raise TypeError(f"{len(arrays)} arrays; the program has {len(self.names)}: {', '.join(self.names)}")
        return list(self.run(dict(zip(self.names, arrays))).values())


def from_jax(f: Any, *args: Any, mesh: MeshLike = None, **options: Any) -> Imported:
    """A JAX function as it is lowered for arguments of these shapes (arrays, or ``jax.ShapeDtypeStruct``), on any mesh.

    The arguments of the result are the leaves of args, in JAX's order: ``imported(*jax.tree.leaves((x, y)))``. Of a
    jitted f with static arguments they are those of its text, without what it does not use (``imported.names``).
    """
    jax = importlib.import_module("jax")

    try:
        lowered = jax.jit(f, keep_unused=True).lower(*args)
    except (TypeError, ValueError):
        if not hasattr(f, "lower"):
            raise
        lowered = f.lower(*args)
    text = lowered.as_text(debug_info=True)
    found = re.search(r"module @(\w+)", text)
    return Imported(text, mesh, name=found.group(1) if found else "jax", **options)


def from_torch(
    exported: Any,
    mesh: MeshLike = None,
    *,
    layouts: Mapping[str, str] | None = None,
    gradients: str | bool = False,
    **options: Any,
) -> Imported:
    """What ``torch.export.export`` returned, on any mesh; layouts and gradients as of :class:`Imported`."""
    torch = importlib.import_module("torch")
    archive = io.BytesIO()
    torch.export.save(exported, archive)
    return Imported(archive.getvalue(), mesh, layouts=layouts, gradients=gradients, name="exported", **options)


def torch_layouts(module: Any) -> dict[str, Any]:
    """The placements of a module's DTensors as layouts: ``{"mesh": "dp=2,tp=4", "layouts": {"up.weight": "tp,_"}}``.

    As JSON it is a file for ``--layouts``. Of a module with no DTensor there are none.
    """
    meshes: set[str] = set()
    layouts: dict[str, str] = {}
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        placements = getattr(tensor, "placements", None)
        if placements is None:
            continue
        mesh = tensor.device_mesh
        axes = mesh.mesh_dim_names or [f"axis{i}" for i in range(mesh.ndim)]
        meshes.add(",".join(f"{axis}={size}" for axis, size in zip(axes, mesh.shape)))
        # a strided shard is cut after the later axes of its dimension (FSDP of what tensor parallelism has cut)
        cuts: list[tuple[list[str], list[str]]] = [([], []) for _ in tensor.shape]
        for axis, placement in zip(axes, placements):
            if placement.is_partial():
                raise ValueError(f"{name} is partial over {axis}: its placements must be Shard and Replicate")
            if not placement.is_replicate():
                cuts[placement.dim][hasattr(placement, "split_factor")].append(axis)
        dims = [major + minor for major, minor in cuts]
        layouts[name] = ",".join("_" if not d else d[0] if len(d) == 1 else f"({','.join(d)})" for d in dims)
    if len(meshes) > 1:
        raise ValueError(f"tensors of several meshes: {'; '.join(sorted(meshes))}")
    return {"mesh": meshes.pop() if meshes else "", "layouts": layouts}
