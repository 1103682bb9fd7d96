"""Meshes and layouts as values."""

import pickle

import numpy as np
import pytest

import cleave
from cleave import Layout, Mesh, errors


def test_mesh_forms():
    a = Mesh({"data": 2, "model": 4})
    assert a == Mesh("data=2,model=4") == Mesh(data=2, model=4) == Mesh(a)
    assert a.axes == {"data": 2, "model": 4} and a.ranks == 8 and str(a) == "data=2,model=4"
    assert a.coordinates(5) == {"data": 1, "model": 1}
    assert hash(a) == hash(Mesh(str(a))) and a != Mesh("model=4,data=2") and a != "data=2,model=4"
    assert Mesh().ranks == 1 and Mesh("").axes == {}
    assert pickle.loads(pickle.dumps(a)) == a


@pytest.mark.parametrize("bad", ["model=0", "model", "a=2,a=2", "=3", "a=99999999999", "a=2\0b=3"])
def test_mesh_refused(bad):
    with pytest.raises(ValueError):
        Mesh(bad)


def test_mesh_refused_by_type():
    for bad in (4, ["a"], b"a=2", 2.5):
        with pytest.raises(TypeError):
            Mesh(bad)
    with pytest.raises((TypeError, ValueError)):
        Mesh({"a": 2.5})
    with pytest.raises(ValueError):
        Mesh({"a=2,b": 3})
    with pytest.raises(IndexError):
        Mesh("a=2").coordinates(2)


def test_layout_forms():
    mesh = Mesh(data=2, model=4)
    assert str(Layout(mesh, ("data", None, "model"))) == "data,_,model"
    assert str(Layout(mesh, (("data", "model"), ()))) == "(data,model),_"
    assert str(Layout(mesh, ("data", None), sum="model")) == "data,_ + sum{model}"
    assert Layout(mesh, "data,_") == Layout(mesh, ("data", None))
    assert Layout(mesh, ndim=2).blocks == (1, 1)
    layout = Layout(mesh, "data,model")
    assert layout.blocks == (2, 4) and layout.block(5) == (1, 1) and not layout.is_partial
    assert layout.shard((4, 10), 5) == (slice(2, 4), slice(2, 5))
    assert pickle.loads(pickle.dumps(layout)) == layout and hash(layout) == hash(Layout(mesh, "data,model"))


def test_shards_cover():
    """The shards of the ranks make up the tensor, however uneven."""
    for text in ("x,_", "_,x", "(y,x),_", "y,x"):
        layout = Layout("x=3,y=2", text)
        whole = np.arange(35).reshape(5, 7)
        seen = np.zeros_like(whole)
        for rank in range(6):
            seen[layout.shard(whole.shape, rank)] += 1
        assert (seen == 6 // np.prod(layout.blocks)).all()


def test_layout_refused():
    with pytest.raises(errors.AxisError, match="model"):
        Layout("model=2", "data")
    with pytest.raises(errors.AxisError):
        Layout("model=2", "model,model")
    with pytest.raises(ValueError):
        Layout("model=2", "model,_").shard((3,), 0)
    with pytest.raises(ValueError):
        Layout("model=2", "model,_").shard((-3, 2), 0)
    with pytest.raises(IndexError):
        Layout("model=2", "model").block(2)
    with pytest.raises(TypeError):
        Layout("model=2", ((1, 2),))
    with pytest.raises(errors.ShapeError):
        Layout("model=2", "model*4").html((6,))


def test_layout_picture():
    html = Layout("data=2,model=2", "model,_")._repr_html_()
    assert "0, 2" in html and "1, 3" in html and "block 1" in html
    assert "<th>3:7</th>" in Layout("model=2", "model").html((7,))
    three = Layout("a=2,b=2,c=2", "a,b,c").html((2, 2, 2))
    assert three.count("<table") == 2 and three.count("<td") == 8 and three.endswith("</div>")
    assert "partial: sum{model}" in Layout("model=2", "_ + sum{model}").html()
    assert "9000 ranks" in Layout("x=9000", "x").html()
