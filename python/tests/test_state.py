"""What state is for: parameters are told from other state where they are made."""

import pytest

import cleave
from cleave import errors


def test_parameters_are_what_was_made_so():
    g = cleave.Graph("model=2")
    w = g.parameter("w", (4,), layout="model")
    g.state("mean", (4,))
    g.state("cache", (4,), role="cache")
    count = g.state("count", (), "i32")
    assert [v.name for v in g.parameters()] == ["w"]
    g.assign(w, w * 2.0)
    g.assign(count, count)
    assert [v.name for v in g.parameters()] == ["w"]


def test_refusals():
    g = cleave.Graph("model=2")
    with pytest.raises(ValueError, match="no role 'parameter'; valid: buffer, cache, optimizer"):
        g.state("w", (4,), role="parameter")
    with pytest.raises(errors.CleaveError, match="a parameter of i32"):
        cleave.Graph("model=2").parameter("n", (4,), "i32")
