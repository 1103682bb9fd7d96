"""What looks right and is wrong is refused, in words; nothing that bounds are checked by can be set."""

import copy
import functools
import pickle

import numpy as np
import pytest
from conftest import GOLDEN

import cleave
from cleave._handle import ProcessLocal

SIZES = dict(hidden=8, layers=1, heads=2, ffn=8, vocab=256)


@pytest.fixture(scope="module")
def small():
    return cleave.new_model(**SIZES)


def value(dtype="i32"):
    return cleave.Graph().input("x", (3,), dtype)


def test_labels(small):
    trainer = cleave.Trainer(small, 1, 3, steps=5)
    ids = np.array([[1, 2, 3]])
    for call in (trainer.step, small.evaluate):
        for labels in ([[256, 5, 5]], [[-1, 5, 5]], ids + 256):
            with pytest.raises(ValueError, match="label 0 of sequence 0 is .*; valid: 0 to 255, or -100"):
                call(ids, labels)
    for call in (trainer.loss, small.evaluate):
        with pytest.raises(ValueError, match="no label counts"):
            call(ids, [[-100, -100, -100]])
    assert trainer.step(ids, [[-100, 255, 0]]).step == 0


@pytest.mark.parametrize(
    "dtype, number", [("i32", 0.5), ("i32", 1.5), ("u8", float("nan")), ("bool", 1), ("i64", float("inf"))]
)
def test_numbers_that_are_not_whole(dtype, number):
    for combine in (lambda x: x * number, lambda x: number + x):
        with pytest.raises(TypeError, match="astype"):
            combine(value(dtype))


@pytest.mark.parametrize("dtype, number", [("i32", 2**40), ("u8", 300), ("u8", -1), ("i64", 2**53 + 1), ("i64", 2**63)])
def test_numbers_beyond_a_dtype(dtype, number):
    with pytest.raises(OverflowError, match="does not hold"):
        value(dtype) + number


def test_whole_numbers_do_not_divide():
    for divide in (
        lambda x: x / 2,
        lambda x: x / 0,
        lambda x: x / x,
        lambda x: 1 / x,
        lambda x: x**-1,
        lambda x: cleave.divide(x, 2),
    ):
        with pytest.raises(TypeError, match="division: astype"):
            divide(value())
    x = value()
    assert (x * 2 + 2.0).dtype == "i32" and (x.astype("f32") / 2).dtype == "f32"


def test_comparisons():
    x, y = value(), value()
    for compare in (
        lambda: x == 0,
        lambda: x != x,
        lambda: x == x,
        lambda: x == y,
        lambda: 1.0 == x,
        lambda: x == np.ones(3),
    ):
        with pytest.raises(TypeError, match="equal"):
            compare()
    assert {x: 1, y: 2}[x] == 1 and len({x, y, x}) == 2 and x is not None and x != "text"


def test_what_bounds_are_checked_by_is_read_only(small, tmp_path):
    g = cleave.Graph("model=2")
    x = g.input("x", (2,))
    g.output("y", x + 1)
    trainer = cleave.Trainer(small, 2, 4, steps=5)
    cleave.write_tokens(tmp_path / "tokens", [1, 2, 3, 4, 5], 9)
    things = {
        cleave.Data(tmp_path / "tokens", 4): ("seq", "vocab", "sequences", "checksum", "end_id"),
        trainer: ("batch", "seq", "mesh"), x: ("graph", "shape"),
        g: ("mesh",),
        g.compile(): ("mesh",), cleave.Session(): ("mesh",), small: ("mesh",),
        cleave.Layout("model=2", "model"): ("mesh",),
        cleave.Rules("model=2"): ("mesh",), cleave.Mesh("model=2"): ("axes", "ranks"),
    }  # fmt: skip
    for thing, names in things.items():
        for name in names:
            with pytest.raises(AttributeError):
                setattr(thing, name, 1000)
    assert trainer.batch == 2 and "5 tokens" in repr(next(iter(things)))


def test_decode():
    tokenizer = cleave.Tokenizer.of_bytes()

    class Lies(list):
        def __len__(self):
            return 10**6

    assert (
        tokenizer.decode(Lies([104, 105]))
        == "hi"
        == tokenizer.decode(iter([104, 105]))
        == tokenizer.decode(np.array([104, 105]))
    )
    with pytest.raises(TypeError, match="whole number"):
        tokenizer.decode([1.7])


def test_options_that_are_not_pythons():
    with pytest.raises(TypeError, match="no option 'map'; valid: .*config_only"):
        cleave.load(GOLDEN / "llama", map=True)
    with pytest.raises(TypeError, match="no option 'cancel'"):
        cleave.load(GOLDEN / "llama", cancel=None)
    for name in ("source", "cancel", "colour"):
        with pytest.raises(TypeError) as error:
            cleave.Session(**{name: 1})
        assert "seed" in str(error.value) and not {"cancel", "source"} & set(
            str(error.value).split("valid: ")[1].split(", ")
        )


def test_errors_name_what_is_wanted(small):
    x = value("f32")
    condition = x.graph.input("c", (3,), "bool")
    wrong = [
        (lambda: cleave.load(GOLDEN / "llama", tp=1.5), TypeError, "whole number"),
        (lambda: cleave.load(GOLDEN / "llama", tp="2"), TypeError, "whole"),
        (lambda: cleave.Mesh({"a": 1.5}), TypeError, "a size is a whole number"),
        (lambda: x.graph.parameter("w", (2,), init=5), TypeError, "init is"),
        (lambda: cleave.einsum(x, x), TypeError, "subscripts are a str"),
        (lambda: small.embed(b"abc"), TypeError, "a text is a str"),
        (lambda: cleave.where(condition, 5.0, 1.0), TypeError, "one of them is a value"),
        (lambda: cleave.concatenate([]), ValueError, "no values"),
        (lambda: x.graph.input("", (2,)), ValueError, "name is empty"),
        (lambda: x**x, TypeError, "an exponent is a number"),
        (lambda: x[np.array([0, 1])], TypeError, "not ndarray; see embedding"),
        (lambda: x[[0, 1]], TypeError, "not list; see embedding"),
        (lambda: x[x], TypeError, "not Value; see embedding"),
        (lambda: x[np.True_], TypeError, "not bool"),
        (lambda: x[..., np.array([0]), ...], IndexError, "more than one"),
        (lambda: x.graph.full((3,), 1.5, "i32"), TypeError, "no whole number"),
        (lambda: x.graph.full((1,), float("nan"), "i64"), TypeError, "no whole number"),
        (lambda: x.graph.full((1,), 300, "u8"), OverflowError, "does not hold"),
        (lambda: x.graph.full((1,), 2**53 + 1, "i64"), OverflowError, "does not hold"),
        (lambda: x.graph.full((1,), 7, "bool"), OverflowError, "does not hold"),
        (lambda: x.graph.input("y", 3.0), TypeError, "a size is a whole number, not float"),
        (lambda: x.graph.input("y", None), TypeError, "a size is a whole number, not NoneType"),
        (lambda: x.graph.zeros("ab"), TypeError, "a size is a whole number, not str"),
        (lambda: x.reshape(np.zeros(2)), TypeError, "a size is a whole number, not float64"),
        (lambda: x.sum(1.5), TypeError, "an axis is a whole number, not float"),
        (lambda: x.sum(["a"]), TypeError, "an axis is a whole number, not str"),
        (lambda: cleave.split(x, 1.5), TypeError, "sections is a whole number, not float"),
        (lambda: cleave.split(3, 1), TypeError, "a value of a graph is wanted"),
        (lambda: cleave.expand_dims(1.5, 0), TypeError, "a value of a graph is wanted"),
        (lambda: cleave.dot(x, None), TypeError, "a value of a graph is wanted"),
        (lambda: cleave.dropout(x, "p"), TypeError, "p is a number, not str"),
        (lambda: cleave.nn.rms_norm(x, eps=()), TypeError, "eps is a number, not tuple"),
        (lambda: cleave.nn.column_parallel_linear(x, "8"), TypeError, "features is a whole number, not str"),
        (lambda: cleave.Layout("a=2", (1,)), TypeError, "a layout's entry is None, an axis or a tuple of axes, not 1"),
        (lambda: cleave.Data(GOLDEN / "make_mlp.py", -1), ValueError, "sequences of -1 tokens; valid: 1 and above"),
        (lambda: cleave.Session("a=2147483647"), MemoryError, r"out of memory: \d{9,} bytes for the ranks"),
        (lambda: cleave.plan(block="gpt", machine="tpu-v2-8"), TypeError, "no option 'machine'; valid: .*hardware"),
        (lambda: cleave.plan(block=1.0), TypeError, "block is a whole number, not float"),
        (lambda: cleave.plan(block="gpt", explain=3), TypeError, "explain is a str, not int"),
        (lambda: cleave.plan(block="gpt", bias="yes"), TypeError, "bias is True or False, not 'yes'"),
        (lambda: cleave.plan(block="gpt", rules=3), TypeError, "rules are a preset, a file, or pairs"),
        (lambda: cleave.load(GOLDEN / "llama", rules=[3]), TypeError, "rules are a preset, a file, or pairs"),
        (lambda: cleave.load(GOLDEN / "llama", hardware="x"), TypeError, "valid: .*machine.*rules.*tp"),
        (lambda: cleave.Session(job=3), TypeError, "job is a cleave.Job, not int"),
        (lambda: cleave.Session(seed="x"), TypeError, "seed is a whole number, not str"),
        (lambda: cleave.Session(transport=3), TypeError, "transport is a str, not int"),
        (lambda: small.generate(3), TypeError, "a prompt is a str, or there is a list of them, not int"),
        (lambda: small.generate("x", stop=3), TypeError, "a stop text is a str, or there is a list"),
        (lambda: small.generate("x", temperature="hot"), TypeError, "temperature is a number, not str"),
        (lambda: small.generate("x", top=3), TypeError, "valid: .*temperature, top_k"),
        (lambda: small.embed(3), TypeError, "a text is a str, or there is a list"),
        (lambda: small.score(3), TypeError, "a text is a str, or there is a list"),
        (lambda: small.score(["abc", "c"]), ValueError, "text 2: .*a perplexity needs two or more"),
        (lambda: small.logits([[1, 2], [3]]), ValueError, "ids are rows of different lengths: pad them"),
        (lambda: small.evaluate([[1, 2]], [[1, 2], [3]]), ValueError, "labels are rows of different lengths"),
        (lambda: small.shard(None), TypeError, "a folder is a str"),
        (lambda: cleave.Trainer(small, 2, 4, steps=9, lr="x"), TypeError, "lr is a number, not str"),
        (lambda: cleave.Session().unload(3), TypeError, "a session runs Programs, not int"),
    ]  # fmt: skip
    for call, kind, match in wrong:
        with pytest.raises(kind, match=match):
            call()


def test_inputs_of_runs():
    given, x = value("f32"), np.ones(3, np.float32)
    given.graph.output("y", given * 2)
    program = cleave.compile(given.graph)
    with cleave.Session() as session:
        with pytest.raises(TypeError, match="inputs are a dict of arrays by name, not list"):
            session.run(program, [x])
        with pytest.raises(TypeError, match="input 'x' is given twice"):
            session.run(program, {"x": x}, x=x)


def test_arrays_that_would_lose_something():
    g = cleave.Graph()
    g.output("y", g.input("x", (2,)) * 2)
    g.output("z", g.input("b", (2,), "bf16").astype("f32"))
    program, session = g.compile(), cleave.Session()
    ones = np.ones(2, np.float32)
    with pytest.raises(TypeError, match="whose mask would be lost"):
        session.run(program, x=np.ma.masked_array(ones, [True, False]), b=[1, 2])
    with pytest.raises(TypeError, match="bits as uint16"):
        session.run(program, x=ones, b=ones)
    assert session.run(program, x=ones, b=ones.tolist())["z"].tolist() == [1, 1]


def test_copies():
    g = cleave.Graph("model=2")
    g.output("y", g.input("x", (4, 4), layout="model,_"), layout="_,_")
    plan = g.compile().plan()
    for again in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert repr(again) == repr(plan) and again.collectives == plan.collectives and again.memory == plan.memory
        assert (
            again.predicted == plan.predicted and again.fits == plan.fits and again._repr_html_() == plan._repr_html_()
        )


def test_what_lives_in_the_process(small, tmp_path):
    """Is not pickled, and has no twin that the other one could close."""
    g = cleave.Graph("model=2")
    x = g.input("x", (4, 4))
    g.output("y", x + 1)
    cleave.write_tokens(tmp_path / "tokens", [1, 2, 3, 4, 5], 9)
    things = [
        g, x, g.compile(), cleave.Session(), small, cleave.Trainer(small, 1, 3, steps=5), cleave.Tokenizer.of_bytes(),
        small.tokenizer, cleave.Data(tmp_path / "tokens", 4),
        cleave.Machine(), cleave.Machine("tpu-v2-8"), cleave.Checkpoint(GOLDEN / "llama"), cleave.Rules("model=2"),
        cleave.Imported("func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"),
        object.__new__(cleave.Job),  # no launcher is here
    ]  # fmt: skip
    kinds = {type(thing) for thing in things}
    for kind in vars(cleave).values():
        if isinstance(kind, type) and issubclass(kind, ProcessLocal):
            assert kind in kinds, f"{kind} is not tried"
    for thing in things:
        for take in (pickle.dumps, lambda t: pickle.dumps(t, 0), copy.copy, copy.deepcopy):
            with pytest.raises(
                TypeError, match=f"a {type(thing).__name__} lives in this process: it is neither pickled nor copied"
            ):
                take(thing)
    for data in (
        cleave.Mesh("model=2"),
        cleave.Layout("model=2", "model,_"),
        cleave.Score(3, 1.5),
        small.generate("a", max_tokens=2),
    ):
        assert pickle.loads(pickle.dumps(data)) == copy.deepcopy(data) == copy.copy(data) == data


def test_closed_things_say_so():
    model = cleave.new_model(**SIZES)
    x = value()
    model.close()
    x.graph.close()
    assert "closed" in repr(model) and "i32[3]" in repr(x)


def test_everything_of_a_class_says_what_it_is():
    kinds = [k for k in vars(cleave).values() if callable(k) and getattr(k, "__module__", "").startswith("cleave")]
    assert len(kinds) > 60
    for kind in kinds:
        assert kind.__doc__, kind
        for name, member in vars(kind).items() if isinstance(kind, type) else ():
            is_member = callable(member) or isinstance(
                member, (property, classmethod, staticmethod, functools.cached_property)
            )
            if is_member and not name.startswith("_"):
                assert member.__doc__, f"{kind.__name__}.{name}"
