"""Misuse is an exception, never a crash."""

import inspect
import pickle
import random

import numpy as np
import pytest

import cleave
from cleave import errors

HOSTILE = [None, 0, -1, 2**31, 2**63, 2**200, -(2**70), 1.5, float("nan"), "", "x", "\0", "é" * 300, b"x", (), (1,),
           (0,) * 9, [None],
           {}, {"a": 1}, object(), Ellipsis, slice(0, 2), True, np.float64(1), np.zeros(3), np.int64(4), lambda: 1,
           type]  # fmt: skip
FINE = (
    TypeError,
    ValueError,
    OverflowError,
    IndexError,
    KeyError,
    AttributeError,
    MemoryError,
    ArithmeticError,
    NotImplementedError,
    OSError,
)


def functions():
    skipped = {"Graph", "Value"}
    for name in dir(cleave.graph):
        f = getattr(cleave.graph, name)
        if (
            callable(f)
            and not name.startswith("_")
            and getattr(f, "__module__", "") == "cleave.graph"
            and name not in skipped
        ):
            yield name, f


def test_functions():
    rng = random.Random(5)
    for name, f in functions():
        g = cleave.Graph("model=2")
        values = [
            g.input("x", (2, 3)),
            g.input("i", (2,), "i32"),
            g.full((), 1.0),
            g.input("y", (2, 3, 2, 4)),
            cleave.Graph().input("z", (2, 3)),
        ]
        for _ in range(120):
            arguments = [
                rng.choice(values + HOSTILE) if rng.random() < 0.6 else values[0] for _ in range(rng.randint(0, 4))
            ]
            try:
                f(*arguments)
            except FINE:
                pass
        g.output("still", values[0] + 1.0)  # the graph goes on
        cleave.compile(g)


def test_methods_of_graphs():
    rng = random.Random(6)
    for name in (
        "input",
        "parameter",
        "assign",
        "output",
        "constrain",
        "keep_in_place",
        "gradients",
        "adamw",
        "sgd",
        "lion",
        "full",
        "arange",
        "_optional",
    ):
        g = cleave.Graph("model=2")
        values = [g.input("x0", (2, 3)), g.parameter("w0", (3,)), cleave.Graph().input("z", (2, 3))]
        for _ in range(150):
            arguments = [rng.choice(values + HOSTILE) for _ in range(rng.randint(0, 5))]
            try:
                getattr(g, name)(*arguments)
            except FINE:
                pass
        with pytest.raises(FINE):
            with g.scope(None):
                pass
        repr(values)


def test_constructors():
    for bad in HOSTILE:
        for make in (
            cleave.Mesh, cleave.Graph, cleave.Session, lambda b: cleave.Layout("x=2", b),
            lambda b: cleave.Layout(b, "x"), cleave.compile,
            lambda b: cleave.Layout("x=2", "x").html(b), lambda b: cleave.Layout("x=2", "x", ndim=b),
        ):  # fmt: skip
            try:
                made = make(bad)
            except FINE:
                continue
            if isinstance(made, cleave.Session):
                made.close()


def adder():
    g = cleave.Graph()
    g.output("y", g.input("x", (2,)) + 1)
    return g


def test_values_of_elsewhere():
    a, b = cleave.Graph(), cleave.Graph()
    x, y = a.input("x", (2,)), b.input("y", (2,))
    with pytest.raises(ValueError, match="another graph"):
        x + y
    with pytest.raises(ValueError, match="another graph"):
        a.output("y", y)
    with pytest.raises(TypeError, match="inputs"):
        x + np.ones(2)
    with pytest.raises(TypeError, match="where"):
        bool(x)
    with pytest.raises(TypeError, match="output"):
        np.asarray(x)
    with pytest.raises(TypeError, match="output"):
        cleave.Session().run(cleave.compile(adder()), x=x)
    with pytest.raises(ValueError):
        np.ones(2) @ x if False else a.gradients(x, [y])
    a.close()
    with pytest.raises(ValueError, match="closed"):
        x + 1
    assert repr(y) == "<cleave.Value f32[2] y>"


def test_a_mistake_is_forgiven():
    g = cleave.Graph("model=2")
    x = g.input("x", (2, 3))
    for wrong in (lambda: x + g.zeros((4, 4)), lambda: x.reshape(7), lambda: cleave.einsum("ab,cd->abe", x, x),
                  lambda: g.parameter("w", (3,), layout="data"), lambda: x @ x,
                  lambda: g.gradients(x, [x], seed=x[0])):  # fmt: skip
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(errors.ExistsError):
        g.input("x", (1,))
    g.output("y", x * 2)
    assert cleave.Session("model=2").run(g.compile(), x=np.ones((2, 3), np.float32))["y"].sum() == 12


def test_compile_options():
    g = cleave.Graph("model=2")
    g.output("y", g.input("x", (4, 4), layout="model,_"), layout="_,_")
    with pytest.raises(TypeError, match="valid: .*reshard_after_forward"):
        cleave.compile(g, fast=True)
    with pytest.raises(TypeError):
        cleave.compile(g, explain=3)
    with pytest.raises(TypeError, match="greedy_by_size_limit"):
        cleave.compile(g, greedy_by_size_limit="many")
    program = cleave.compile(g, by_bytes=True)
    (row,) = program.collectives
    assert (
        row["kind"] == "all_gather" and row["axes"] == ["model"] and row["bytes"] == 32 and "output y" in row["cause"]
    )
    assert program.memory["total"] > 0 and "all_gather" in str(program) and "<table>" in program._repr_html_()


def test_errors_are_of_both_kinds():
    from cleave._cleave import lib

    kinds = [getattr(errors, name) for name in errors.__all__ if name != "CleaveError"]
    for kind in kinds:
        assert issubclass(kind, errors.CleaveError) and len(kind.__mro__) > 4 and kind.__doc__
        again = pickle.loads(pickle.dumps(kind("a message", 3, "op")))
        assert str(again) == "a message" and again.rank == 3 and again.op == "op" and type(again) is kind
    code, statuses = 1, set()
    while (status := errors.py_str(lib.clv_status_name(code))) != "unknown":
        statuses.add(status)
        code += 1
    assert statuses == {kind.status for kind in kinds}  # every status of the library has its exception


def test_version_is_that_of_the_library():
    import re

    from conftest import SOURCE

    assert cleave.__version__ == re.search(
        r"project\(cleave VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text()
    ).group(1)
    public = {n for n in vars(cleave) if not n.startswith("_") and not inspect.ismodule(vars(cleave)[n])} - {
        "annotations"
    }
    assert public | {"errors", "nn"} == set(cleave.__all__)


def test_everything_public_says_what_it_is():
    for module in (cleave, cleave.nn, cleave.errors):
        for name, thing in vars(module).items():
            if name.startswith("_") or not (inspect.isfunction(thing) or inspect.isclass(thing)):
                continue
            assert thing.__doc__, name
            assert not inspect.isfunction(thing) or thing.__annotations__.get("return"), name


def test_methods_of_all_else(tmp_path):
    """Every public method of everything, with everything."""
    from conftest import GOLDEN

    rng = random.Random(8)
    g = cleave.Graph("model=2")
    g.output("y", g.state("w", (2, 3)) + g.input("x", (2, 3)))
    program, session = cleave.compile(g), cleave.Session("model=2")
    session.load(program)
    model = cleave.load(GOLDEN / "llama", tp=2)
    small = cleave.new_model(hidden=8, layers=1, heads=2, ffn=8, vocab=256)
    text = tmp_path / "text"
    text.write_text("words " * 50)
    cleave.write_tokens(tmp_path / "tokens", [1, 2, 3, 4, 5, 6], 256)
    tokens = cleave.Data(tmp_path / "tokens", 4)
    things = [
        session, program, model, small, cleave.Trainer(small, 2, 4, steps=9), cleave.Data(text, 4), tokens,
        cleave.Tokenizer.of_bytes(),
        cleave.Checkpoint(GOLDEN / "llama"), cleave.Layout("model=2", "model,_"), program.plan(), cleave.Machine(),
        cleave.Mesh("a=2"), small.embed,
    ]  # fmt: skip
    values = [
        *HOSTILE,
        "x",
        "w",
        "y",
        np.ones((2, 3), np.float32),
        [[1, 2]],
        {"x": np.ones((2, 3), np.float32)},
        program,
        slice(1, 2),
        (slice(0, 1),),
        ["a"],
    ]
    skipped = {"close", "fit", "shard", "save"}
    for thing in things:
        for name in dir(type(thing)):
            method = getattr(type(thing), name)
            if name.startswith("__") and name not in (
                "__getitem__",
                "__setitem__",
                "__contains__",
                "__eq__",
                "__dlpack__",
            ):
                continue
            if name in skipped or (name.startswith("_") and not name.startswith("__")) or not callable(method):
                continue
            for _ in range(40):
                arguments = [rng.choice(values) for _ in range(rng.randint(0, 3))]
                named = {"max_tokens": 2} if name == "generate" else {}
                try:
                    made = getattr(thing, name)(*arguments, **named)
                    if name == "generate":
                        list(made)
                except FINE:
                    pass
    with cleave.Session("model=2") as fresh:
        assert fresh.run(program, x=np.ones((2, 3), np.float32))["y"].sum() == 6
    assert np.isfinite(model.logits([[1, 2]])).all()
