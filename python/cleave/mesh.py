"""Meshes: ranks arranged along named axes. Layouts: where each part of a tensor lives on one."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

from ._c import NULL, ReadOnly, print_to_string, as_shape, c_str, whole
from ._cleave import ffi, lib
from .errors import check

MeshLike = Union["Mesh", Mapping[str, int], str, None]
#: A layout as text ("data,_,model"), or a tuple of an entry a dimension: None, an axis, or a tuple of axes.
LayoutLike = Union["Layout", str, Sequence[Union[str, Sequence[str], None]], None]


class Mesh:
    """Ranks along named axes: ``Mesh({"data": 2, "model": 4})``, ``Mesh(data=2, model=4)`` or
    ``Mesh("data=2,model=4")``.

    Ranks are row-major over the axes: those of the last one are neighbours. A mesh is a value: equal ones are the same.
    """

    def __init__(self, axes: MeshLike = None, /, **more: int) -> None:
        self._mesh = ffi.new("clv_mesh *")
        if isinstance(axes, Mesh):
            axes = axes.axes
        if isinstance(axes, str) and not more:
            check(lib.clv_mesh_parse, self._mesh, c_str(axes, "a mesh"))
            return
        if isinstance(axes, (str, bytes)) or not (axes is None or isinstance(axes, Mapping)):
            raise TypeError('a mesh is {"data": 2, "model": 4} or "data=2,model=4"')
        sizes = {**(axes or {}), **more}
        text = ",".join(f"{name}={whole(size, 'a size')}" for name, size in sizes.items())
        check(lib.clv_mesh_parse, self._mesh, c_str(text))
        if self._mesh.n_axes != len(sizes):
            raise ValueError(f"an axis' name is letters, digits and '_': {list(sizes)}")

    @property
    def axes(self) -> dict[str, int]:
        """Sizes by name, in order."""
        found = (self._mesh.axis[i] for i in range(self._mesh.n_axes))
        return {ffi.string(a.name).decode(): a.size for a in found}

    @property
    def ranks(self) -> int:
        """How many there are."""
        return int(lib.clv_mesh_rank_count(self._mesh))

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a rank stands on each axis."""
        if not 0 <= rank < self.ranks:
            raise IndexError(f"rank {rank} of {self.ranks}")
        names = enumerate(self.axes)
        return {n: lib.clv_mesh_coordinate(self._mesh, lib.clv_mesh_whole_axis(self._mesh, i), rank) for i, n in names}

    def __str__(self) -> str:
        return print_to_string(lib.clv_mesh_print, self._mesh)

    def __repr__(self) -> str:
        return f"Mesh('{self}')"

    def __eq__(self, other: object) -> bool:
        return bool(lib.clv_mesh_equal(self._mesh, other._mesh)) if isinstance(other, Mesh) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> Any:
        return Mesh, (str(self),)


def as_mesh(mesh: MeshLike) -> Mesh:
    """The mesh that is meant."""
    return mesh if isinstance(mesh, Mesh) else Mesh(mesh)


def _entry(entry: Any) -> str:
    if entry is None:
        return "_"
    if isinstance(entry, str):
        return entry or "_"
    axes = list(entry) if isinstance(entry, (tuple, list)) else [entry]
    if not all(isinstance(a, str) for a in axes):
        raise TypeError(f"a layout's entry is None, an axis or a tuple of axes, not {entry!r}")
    return "_" if not axes else axes[0] if len(axes) == 1 else "(" + ",".join(axes) + ")"


def _text_of(spec: Any) -> tuple[str, int]:
    """The text form and the number of dimensions that it names."""
    if isinstance(spec, str):
        cuts = spec.split("+")[0]
        depth = entries = 0
        for letter in cuts:
            depth += (letter == "(") - (letter == ")")
            entries += letter == "," and depth == 0
        return spec, entries + 1 if cuts.strip() else 0
    entries_of = [_entry(e) for e in spec]
    return ",".join(entries_of), len(entries_of)


class Layout(ReadOnly):
    """Where the parts of a tensor live on a mesh: ``Layout(mesh, "data,_,model")`` or ``Layout(mesh, ("data", None,
    "model"))``.

    An entry a dimension: the axis (or axes, major to minor) that cut it, or None; as text also an alignment
    (``model*64``), a part of an axis (``y:(2)2``), and the axes over which it is partial (``x,_ + sum{y}``; here also
    ``sum="y"`` or ``max="y"``). Axes that are not named hold replicas. A layout is a value. In a notebook it shows
    which ranks hold which block.
    """

    def __init__(
        self, mesh: MeshLike, spec: LayoutLike = None, *, ndim: int | None = None, sum: Any = None, max: Any = None
    ) -> None:
        self.mesh = as_mesh(mesh)
        self._layout = ffi.new("clv_layout *")
        if isinstance(spec, Layout):
            spec = str(spec)
        if spec is None:
            spec = ("_",) * (ndim or 0)
        text, named = _text_of(spec)
        for kind, axes in (("sum", sum), ("max", max)):
            if axes is not None:
                text += f" + {kind}{{{axes if isinstance(axes, str) else ','.join(axes)}}}"
        if ndim is None:
            ndim = named
        check(lib.clv_layout_parse, self._layout, c_str(text, "a layout"), self.mesh._mesh, ndim)

    @classmethod
    def _of(cls, mesh: Mesh, layout: Any) -> "Layout":
        made = cls.__new__(cls)
        made.mesh, made._layout = mesh, ffi.new("clv_layout *", layout)
        return made

    @property
    def ndim(self) -> int:
        """Dimensions of the tensor."""
        return int(self._layout.rank)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Into how many blocks each dimension is cut."""
        return tuple(lib.clv_layout_block_count(self._layout, d) for d in range(self.ndim))

    @property
    def is_partial(self) -> bool:
        """Whether its value is the sum or maximum over ranks."""
        return bool(lib.clv_layout_is_partial(self._layout))

    def block(self, rank: int) -> tuple[int, ...]:
        """Which block of each dimension a rank holds."""
        if not 0 <= rank < self.mesh.ranks:
            raise IndexError(f"rank {rank} of {self.mesh.ranks}")
        return tuple(lib.clv_layout_block_index(self._layout, self.mesh._mesh, d, rank) for d in range(self.ndim))

    def shard(self, shape: Sequence[int], rank: int) -> tuple[slice, ...]:
        """The elements that a rank holds of a tensor of this shape: ``array[layout.shard(array.shape, rank)]``."""
        sizes = self._check(shape)
        if not 0 <= rank < self.mesh.ranks:
            raise IndexError(f"rank {rank} of {self.mesh.ranks}")
        s = lib.clv_layout_shard(self._layout, self.mesh._mesh, sizes, rank)
        return tuple(slice(s.lo[d], s.hi[d]) for d in range(self.ndim))

    def _check(self, shape: Sequence[int]) -> Any:
        sizes = as_shape(shape)
        if len(sizes) != self.ndim:
            raise ValueError(f"a layout of {self.ndim} dimensions, a shape of {len(sizes)}")
        if any(n < 0 for n in sizes):
            raise ValueError(f"sizes of {sizes} are below 0")
        array = ffi.new("int64_t[]", sizes)
        check(lib.clv_layout_check, self._layout, self.mesh._mesh, array)
        return array

    def __str__(self) -> str:
        return print_to_string(lib.clv_layout_print, self._layout, self.mesh._mesh)

    def __repr__(self) -> str:
        return f"Layout('{self.mesh}', '{self}')"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return self.mesh == other.mesh and bool(lib.clv_layout_equal(self._layout, other._layout))

    def __hash__(self) -> int:
        return hash((self.mesh, str(self)))

    def __reduce__(self) -> Any:
        return Layout, (str(self.mesh), str(self))

    # ---- pictures ----

    def _holders(self) -> dict[tuple[int, ...], list[int]]:
        held: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.mesh.ranks):
            held.setdefault(self.block(rank), []).append(rank)
        return held

    def _range(self, shape: Sequence[int] | None, d: int, block: int) -> str:
        if shape is None:
            return f"block {block}"
        lo, hi = ffi.new("int64_t *"), ffi.new("int64_t *")
        lib.clv_block_range(shape[d], self._layout.alignment[d], self.blocks[d], block, lo, hi)
        return f"{lo[0]}:{hi[0]}"

    def html(self, shape: Sequence[int] | None = None) -> str:
        """A table whose cells are blocks, with the ranks that hold them; with a shape, rows and columns name
        elements."""
        if shape is not None:
            self._check(shape)
        if self.mesh.ranks > 4096:
            return f"<p>{html.escape(repr(self))}: {self.mesh.ranks} ranks</p>"
        cut = [d for d, n in enumerate(self.blocks) if n > 1]
        *outer, row, column = [-1, -1, *cut][-max(2, len(cut)) :]
        return "".join(self._tables(shape, outer, row, column))

    def _tables(self, shape: Sequence[int] | None, outer: list[int], row: int, column: int) -> Iterator[str]:
        held, blocks = self._holders(), self.blocks
        yield f"<div><code>{html.escape(str(self))}</code> on <code>{html.escape(str(self.mesh))}</code>"
        outer = [d for d in outer if d >= 0]
        for at in itertools.product(*(range(blocks[d]) for d in outer)):
            fixed = dict(zip(outer, at))
            title = ", ".join(f"dim {d} {self._range(shape, d, b)}" for d, b in fixed.items())
            yield f"<table><caption>{title}</caption>" if title else "<table>"
            columns = range(blocks[column]) if column >= 0 else range(1)
            if column >= 0:
                heads = "".join(f"<th>{self._range(shape, column, c)}</th>" for c in columns)
                yield f"<tr><th></th>{heads}</tr>"
            for r in range(blocks[row]) if row >= 0 else range(1):
                cells = []
                for c in columns:
                    place = {**fixed, row: r, column: c}
                    ranks = held.get(tuple(place.get(d, 0) for d in range(self.ndim)), [])
                    some = ", ".join(map(str, ranks[:8])) + (f", ... ({len(ranks)})" if len(ranks) > 8 else "")
                    hue = 360 * ranks[0] // self.mesh.ranks if ranks else 0
                    cells.append(f'<td style="background:hsl({hue},55%,85%);color:#000">{some}</td>')
                head = f"<th>{self._range(shape, row, r)}</th>" if row >= 0 else "<th></th>"
                yield f"<tr>{head}{''.join(cells)}</tr>"
            yield "</table>"
        if self.is_partial:
            yield f"<p>partial: {html.escape(str(self).split('+', 1)[1].strip())}</p>"
        yield "</div>"

    def _repr_html_(self) -> str:
        return self.html()


def as_layout(spec: LayoutLike, mesh: Mesh, ndim: int) -> Any:
    """A const clv_layout * for a tensor of this graph; NULL for None."""
    if spec is None:
        return NULL
    if isinstance(spec, Layout):
        if spec.mesh != mesh:
            raise ValueError(f"a layout on {spec.mesh!r}; here the mesh is {mesh!r}")
        if spec.ndim != ndim:
            raise ValueError(f"the layout {spec} has {spec.ndim} dimensions, the tensor {ndim}")
        return spec._layout
    return Layout(mesh, spec, ndim=ndim)._layout


def as_box(box: Any, shape: tuple[int, ...], what: str) -> tuple[Any, tuple[int, ...]]:
    """A const clv_shard * for slices of a tensor (NULL: all), and its shape."""
    if box is None:
        return NULL, shape
    box = box if isinstance(box, tuple) else (box,)
    if len(box) > len(shape) or not all(isinstance(s, slice) for s in box):
        raise ValueError(f"a box of '{what}' is at most {len(shape)} slices")
    shard = ffi.new("clv_shard *", {"rank": len(shape)})
    for d, n in enumerate(shape):
        lo, hi, step = (box[d] if d < len(box) else slice(None)).indices(n)
        if step != 1:
            raise ValueError("a box' steps are 1")
        shard.lo[d], shard.hi[d] = lo, lo if hi < lo else hi
    return shard, tuple(shard.hi[d] - shard.lo[d] for d in range(len(shape)))
