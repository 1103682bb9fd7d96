"""Checkpoints: safetensors files, folders of them, and sharded checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import _c
from ._c import dtype_name, shape_of, c_str
from ._cleave import ffi, lib
from ._handle import Handle, ProcessLocal
from .arrays import address, numpy_dtype
from .errors import NotFoundError, UnsupportedError, check, py_str
from .mesh import as_box


class Checkpoint(ProcessLocal, Mapping[str, Any]):
    """A file or folder of tensors by name: ``Checkpoint("folder")["model.norm.weight"]`` reads one, :meth:`read` a part
    of it."""

    def __init__(self, path: Any) -> None:
        out = ffi.new("clv_checkpoint **")
        check(lib.clv_checkpoint_open, out, c_str(path, "a path"), ffi.NULL)
        self._handle = Handle(out[0], lib.clv_checkpoint_close, "checkpoint")
        with self._handle.shared() as checkpoint:
            n = lib.clv_checkpoint_tensor_count(checkpoint)
            infos = [_c.filled("clv_tensor_info", lib.clv_checkpoint_tensor, checkpoint, i) for i in range(n)]
        self._tensors = {py_str(t.name): (i, t) for i, t in enumerate(infos)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def _find(self, name: str) -> tuple[int, Any]:
        if name not in self._tensors:
            raise NotFoundError(f"no tensor '{name}'")
        return self._tensors[name]

    def __getitem__(self, name: str) -> Any:
        return self.read(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor; its data are not read."""
        t = self._find(name)[1]
        return shape_of(t.shape, t.rank)

    def dtype(self, name: str) -> str:
        """Dtype of a tensor; the name in the file for one that the library does not support."""
        t = self._find(name)[1]
        return dtype_name(t.dtype) if t.readable else py_str(t.dtype_name)

    def read(self, name: str, box: Any = None, dtype: Any = None) -> Any:
        """Reads a tensor, or a box of it (slices), as a dtype; only the bytes of the box are read."""
        i, t = self._find(name)
        if not t.readable:
            raise UnsupportedError(f"'{name}' is {self.dtype(name)}, which is not supported")
        shard, shape = as_box(box, self.shape(name), name)
        code = int(t.dtype) if dtype is None else _c.dtype_code(dtype)
        out = np.empty(shape, numpy_dtype(code))
        with self._handle.shared() as checkpoint:
            check(lib.clv_checkpoint_read, checkpoint, i, shard, code, address(out))
        return out

    def close(self) -> None:
        """Closes the files; arrays that were read stay valid."""
        self._handle.close()

    def __repr__(self) -> str:
        return f"<cleave.Checkpoint of {len(self)} tensors>"
