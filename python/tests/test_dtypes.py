"""Every op of arrays with every dtype, against NumPy: the same elements, or a TypeError that says what is valid."""

import numpy as np
import pytest

import cleave

DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": cleave.bfloat16, "i32": np.int32,
          "i64": np.int64,
          "u8": np.uint8, "bool": np.bool_}  # fmt: skip
FLOATS = ("f32", "f64", "f16", "bf16")
TOLERANCE = {"f32": 1e-5, "f64": 1e-12, "f16": 2e-2, "bf16": 1e-1}

ONE = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sqrt": np.sqrt, "square": np.square, "negative": np.negative,
    "absolute": np.absolute,
    "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "var": np.var, "transpose": np.transpose,
    "squeeze": np.squeeze,
    "relu": lambda x: np.maximum(x, 0), "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: 1 / np.sqrt(x),
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "log_softmax": lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True)),
}  # fmt: skip
TWO = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
}  # fmt: skip
#: By the package (m), NumPy or cleave, of one array and another.
FORMS = {
    "-x": lambda m, x, y: -x, "+x": lambda m, x, y: +x, "abs": lambda m, x, y: abs(x), "x ** 0": lambda m, x, y: x**0,
    "x ** 2": lambda m, x, y: x**2, "x ** 3": lambda m, x, y: x**3, "x ** -1": lambda m, x, y: x**-1,
    "x ** 0.5": lambda m, x, y: x**0.5,
    "x @ y": lambda m, x, y: x @ y.T, "dot": lambda m, x, y: m.dot(x, y.T), "einsum": lambda m, x,
    y: m.einsum("ij,ij->i", x, y),
    "where": lambda m, x, y: m.where(_condition(m, x, y), x, y), "concatenate": lambda m, x, y: m.concatenate([x, y]),
    "stack": lambda m, x, y: m.stack([x, y], 1), "reshape": lambda m, x, y: x.reshape(2, 6), "slice": lambda m, x,
    y: x[1:, :2],
    "pad": lambda m, x, y: m.pad(x, 1), "broadcast_to": lambda m, x, y: m.broadcast_to(x, (2, 3, 4)),
    "split": lambda m, x, y: m.split(x, 2, 1)[1],
    "swapaxes": lambda m, x, y: m.swapaxes(x, 0, 1), "expand_dims": lambda m, x, y: m.expand_dims(x, 1),
    "x.max(1)": lambda m, x, y: x.max(1),
    "x.min(0)": lambda m, x, y: x.min(0), "x.sum(1)": lambda m, x, y: x.sum(1),
}  # fmt: skip
NUMBERS = (2, -5, 1.5, 300)
WITH_NUMBER = {
    "x + n": lambda m, x, n: x + n, "n + x": lambda m, x, n: n + x, "x - n": lambda m, x, n: x - n, "n - x": lambda m,
    x, n: n - x,
    "x * n": lambda m, x, n: x * n, "x / n": lambda m, x, n: x / n, "n / x": lambda m, x, n: n / x,
    "maximum": lambda m, x, n: m.maximum(x, n), "minimum": lambda m, x, n: m.minimum(x, n), "equal": lambda m, x,
    n: m.equal(x, n),
    "where": lambda m, x, n: m.where(_condition(m, x, x), x, n),
}  # fmt: skip


def _condition(m, x, y):
    return np.asarray(x == y) if m is np else cleave.equal(x, y).astype("bool")


def arrays_of(dtype):
    rng = np.random.default_rng(3)
    if dtype in FLOATS:
        return [(np.abs(rng.standard_normal((3, 4))) + 0.5).astype(DTYPES[dtype]) for _ in range(2)]
    if dtype == "bool":
        return [rng.integers(0, 2, (3, 4)).astype(bool) for _ in range(2)]
    limits = np.iinfo(DTYPES[dtype])
    made = [rng.integers(limits.min, limits.max, (3, 4), DTYPES[dtype], endpoint=True) for _ in range(2)]
    made[0][0, 0], made[1][0, 0] = limits.min, limits.max
    made[1][1] = made[0][1]
    return made


def ours(function, arrays, dtype):
    g = cleave.Graph("model=2")
    values = [g.input(f"x{i}", a.shape, dtype, ("model", None)) for i, a in enumerate(arrays)]
    g.output("y", function(*values))
    with cleave.Session(g.mesh) as session:
        return session.run(cleave.compile(g), {f"x{i}": a for i, a in enumerate(arrays)})["y"]


def compare(function, numpy, arrays, dtype, allowed=(TypeError,)):
    """The elements are NumPy's: exactly, of dtypes that are no floats; or it is refused in words."""
    try:
        got = ours(function, arrays, dtype)
    except allowed as error:
        assert dtype not in FLOATS, f"{dtype} is refused: {error}"
        assert ("astype" in str(error) or "valid" in str(error)) and dtype in str(error), str(error)
        return
    with np.errstate(all="ignore"):
        want = np.asarray(numpy(*arrays))
    if dtype in FLOATS:
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
        )
        assert got.dtype == DTYPES[dtype]
        return
    np.testing.assert_array_equal(got.astype(want.dtype), want)
    assert got.dtype == DTYPES[dtype] and want.dtype in (got.dtype, np.dtype(bool))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one(name, dtype):
    compare(getattr(cleave, name), ONE[name], arrays_of(dtype)[:1], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TWO)
def test_functions_of_two(name, dtype):
    compare(getattr(cleave, name), TWO[name], arrays_of(dtype), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMS)
def test_forms(name, dtype):
    x, y = arrays_of(dtype)
    wide = (lambda a: a.astype(np.float64)) if dtype == "bf16" else (lambda a: a)  # ml_dtypes leaves some of NumPy out
    compare(lambda a, b: FORMS[name](cleave, a, b), lambda a, b: FORMS[name](np, wide(a), wide(b)), [x, y], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WITH_NUMBER)
def test_numbers(name, dtype):
    """As NumPy 2: a number takes the dtype of what is beside it, and one that this does not hold is an
    OverflowError."""
    x = arrays_of(dtype)[0]
    wide = (lambda a: a.astype(np.float64)) if dtype == "bf16" else (lambda a: a)
    for n in NUMBERS:
        allowed = (TypeError, OverflowError)
        compare(
            lambda a: WITH_NUMBER[name](cleave, a, n), lambda a: WITH_NUMBER[name](np, wide(a), n), [x], dtype, allowed
        )


@pytest.mark.parametrize("dtype", ["i32", "i64", "u8"])
def test_what_whole_numbers_do(dtype):
    """Those that NumPy has are there, and not refused: sums, differences and products that wrap around, the larger, the
    smaller."""
    x, y = arrays_of(dtype)
    with np.errstate(all="ignore"):
        for form in (lambda m, a, b: a + b, lambda m, a, b: a - b, lambda m, a, b: a * b, lambda m, a, b: -a, lambda m,
                     a, b: abs(a),
                     lambda m, a, b: m.maximum(a, b), lambda m, a, b: m.minimum(a, 2), lambda m, a, b: a**3, lambda m,
                     a, b: 5 - a):  # fmt: skip
            np.testing.assert_array_equal(ours(lambda a, b: form(cleave, a, b), [x, y], dtype), form(np, x, y))


@pytest.mark.parametrize("dtype", ["i32", "i64", "u8", "bool"])
@pytest.mark.parametrize("name", ["min", "max", "sum", "mean", "var", "softmax", "exp", "sigmoid"])
def test_refused_by_name(name, dtype):
    with pytest.raises(TypeError, match=rf"{name} of {dtype}; valid: f32, bf16, f64, f16: astype\('f32'\) first"):
        getattr(cleave, name)(cleave.Graph().input("x", 3, dtype))
