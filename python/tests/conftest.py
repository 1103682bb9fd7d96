import os
import pathlib

import numpy as np
import pytest

import cleave

SOURCE = pathlib.Path(os.environ.get("CLV_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
GOLDEN = SOURCE / "tests" / "golden"
MESHES = ["", "model=2", "model=3", "data=2,model=2", "x=5"]
BITS = {"f32": 2e-6, "bf16": 2e-2, "f16": 3e-3, "f64": 1e-13}


@pytest.fixture(params=MESHES, ids=lambda m: m or "one rank")
def mesh(request):
    return cleave.Mesh(request.param)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def evaluate(mesh, function, arrays, layouts=None, dtype="f32"):
    """function of the arrays as inputs of a graph, run on the mesh."""
    g = cleave.Graph(mesh)
    layouts = layouts or [None] * len(arrays)
    kinds = {np.dtype(np.int32): "i32", np.dtype(np.int64): "i64", np.dtype(np.bool_): "bool", np.dtype(np.uint8): "u8"}
    values = [
        g.input(f"x{i}", a.shape, kinds.get(a.dtype, dtype), layout)
        for i, (a, layout) in enumerate(zip(arrays, layouts))
    ]
    made = function(*values)
    made = made if isinstance(made, (list, tuple)) else [made]
    for i, value in enumerate(made):
        g.output(f"y{i}", value)
    with cleave.Session(mesh, check=True) as session:
        given = {v.name: a.astype(cleave.arrays._NUMPY[v.dtype]) for v, a in zip(values, arrays)}
        out = session.run(cleave.compile(g), given)
    return [out[f"y{i}"] for i in range(len(made))]


def close(got, want, dtype="f32", terms=1):
    """Within what rounding of `terms` addends can do."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    worst = float(np.abs(got - want).max(initial=0))
    assert worst <= BITS[dtype] * scale * max(1, terms), f"off by {worst}"
