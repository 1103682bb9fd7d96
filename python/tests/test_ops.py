"""Ops against NumPy, on several meshes."""

import numpy as np
import pytest
from conftest import close, evaluate

import cleave

UNARY = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "square": np.square,
    "negative": np.negative,
    "absolute": np.abs,
}
POSITIVE = {"log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x)}


def erf(x):
    from math import erf

    return np.vectorize(erf)(x)


def test_functions_of_one(mesh, rng):
    x = rng.standard_normal((5, 7))
    axis = list(mesh.axes)[-1] if mesh.axes else None
    for got, want in zip(
        evaluate(mesh, lambda v: [getattr(cleave, n)(v) for n in UNARY], [x], [(None, axis)]), UNARY.values()
    ):
        close(got, want(np.float32(x)), terms=4)
    p = np.abs(x) + 0.5
    for got, want in zip(evaluate(mesh, lambda v: [getattr(cleave, n)(v) for n in POSITIVE], [p]), POSITIVE.values()):
        close(got, want(p), terms=4)
    got = evaluate(
        mesh, lambda v: [cleave.gelu(v), cleave.gelu(v, approximate=True), v**3, v**-2, v**0, v**2.0, abs(v)], [p]
    )
    close(got[0], p * 0.5 * (1 + erf(p / np.sqrt(2))), terms=4)
    close(got[1], 0.5 * p * (1 + np.tanh(np.sqrt(2 / np.pi) * (p + 0.044715 * p**3))), terms=4)
    for g, w in zip(got[2:], [p**3, p**-2.0, p**0, p**2, p]):
        close(g, w, terms=4)


INF, NAN = np.inf, np.nan
# Gradients of JAX 0.10 at 0, -0, 1, inf and -1; abs(x) has torch's 0 at 0.
AT_ENDS = {
    "sqrt": (cleave.sqrt, [INF, -INF, 0.5, 0, NAN]),
    "rsqrt": (cleave.rsqrt, [-INF, -INF, -0.5, 0, NAN]),
    "log": (cleave.log, [INF, -INF, 1, 0, -1]),
    "x ** 0.5": (lambda x: x**0.5, [INF, -INF, 0.5, 0, NAN]),
    "x ** -0.5": (lambda x: x**-0.5, [-INF, -INF, -0.5, 0, NAN]),
    "x ** 3": (lambda x: x**3, [0, 0, 3, INF, 3]),
    "x ** 2": (lambda x: x**2, [0, 0, 2, INF, -2]),
    "x ** 0": (lambda x: x**0, [0, 0, 0, 0, 0]),
    "x ** -1": (lambda x: x**-1, [-INF, -INF, -1, 0, -1]),
    "x ** -2": (lambda x: x**-2, [-INF, INF, -2, 0, 2]),
    "x ** -3": (lambda x: x**-3, [-INF, -INF, -3, 0, -3]),
    "2 / x": (lambda x: 2 / x, [-INF, -INF, -2, 0, -2]),
    "x / 2": (lambda x: x / 2, [0.5] * 5),
    "x / 0": (lambda x: x / 0.0, [INF] * 5),
    "abs": (cleave.absolute, [0, 0, 1, 1, -1]),
    "relu": (cleave.relu, [0, 0, 1, 1, 0]),
    "exp": (cleave.exp, [1, 1, np.e, INF, 1 / np.e]),
    "tanh": (cleave.tanh, [1, 1, 1 - np.tanh(1) ** 2, 0, 1 - np.tanh(1) ** 2]),
    "maximum": (lambda x: cleave.maximum(x, 0.0), [0.5, 0.5, 1, 1, 0]),
}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", AT_ENDS)
def test_gradients_at_ends(name, dtype):
    function, want = AT_ENDS[name]

    def with_gradient(x, seed):
        y = function(x)
        return [y, x.graph.gradients(y, [x], seed)[0]]

    x = np.array([0.0, -0.0, 1, INF, -1])
    for seed in (1.0, -2.0):
        _, got = evaluate(cleave.Mesh({}), with_gradient, [x, np.full(5, seed)], dtype=dtype)
        np.testing.assert_allclose(got, np.array(want) * seed, rtol=1e-6, atol=1e-7)


def test_powers_of_what_is_not_finite():
    x = np.array([0.0, INF, -INF, NAN])
    got = evaluate(cleave.Mesh({}), lambda v: [v**0, v**-2, v**-1], [x])
    with np.errstate(divide="ignore"):
        for g, n in zip(got, (0, -2, -1)):
            np.testing.assert_array_equal(g, x**n)


def test_operators(mesh, rng):
    a, b = rng.standard_normal((4, 1, 6)), rng.standard_normal((3, 6))
    got = evaluate(
        mesh,
        lambda x, y: [
            x + y,
            x - y,
            x * y,
            x / y,
            2 - x,
            3.5 * x,
            x + 1,
            1 / y,
            -x,
            cleave.maximum(x, y),
            cleave.minimum(x, 0.25),
            np.float32(2) * x,
            cleave.add(1, x),
        ],
        [a, b],
    )
    a, b = np.float32(a), np.float32(b)
    want = [
        a + b,
        a - b,
        a * b,
        a / b,
        2 - a,
        3.5 * a,
        a + 1,
        1 / b,
        -a,
        np.maximum(a, b),
        np.minimum(a, 0.25),
        2 * a,
        1 + a,
    ]
    for g, w in zip(got, want):
        close(g, w, terms=2)


def test_reductions(mesh, rng):
    x = rng.standard_normal((4, 6, 5))
    forms = [((), {}), ((1,), {}), (((0, 2),), {}), ((-1,), {"keepdims": True})]
    for name in ("sum", "mean", "max", "min", "var"):
        numpy = getattr(np, name)
        got = evaluate(mesh, lambda v: [getattr(cleave, name)(v, *a, **k) for a, k in forms], [x])
        for g, (a, k) in zip(got, forms):
            close(g, numpy(np.float32(x).astype(np.float64), *a, **k), terms=8)
    got = evaluate(mesh, lambda v: [v.sum(0), v.mean(1), v.max(2), v.min()], [x])
    for g, w in zip(got, [x.sum(0), x.mean(1), x.max(2), x.min()]):
        close(g, w, terms=8)


def test_softmax(mesh, rng):
    x = rng.standard_normal((3, 5, 4))
    e = np.exp(x - x.max(1, keepdims=True))
    f = np.exp(x - x.max(-1, keepdims=True))
    got = evaluate(mesh, lambda v: [cleave.softmax(v, axis=1), cleave.softmax(v), cleave.log_softmax(v)], [x])
    close(got[0], e / e.sum(1, keepdims=True), terms=4)
    close(got[1], f / f.sum(-1, keepdims=True), terms=4)
    close(got[2], np.log(f / f.sum(-1, keepdims=True)), terms=8)


def test_shapes(mesh, rng):
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    forms = [
        lambda v: v.reshape(6, 4),
        lambda v: v.reshape((-1, 2)),
        lambda v: v.ravel() if not isinstance(v, np.ndarray) else v.ravel(),
        lambda v: v.T,
        lambda v: v.transpose(1, 0, 2),
        lambda v: v.transpose((2, 0, 1)),
        lambda v: v.swapaxes(0, -1),
        lambda v: v[1],
        lambda v: v[:, 1:, -1],
        lambda v: v[..., None, 2],
        lambda v: v[0, :, 1:3],
        lambda v: v[5:, ::],
        lambda v: v[None],
        lambda v: v[-1, -2:, ...],
    ]
    for got, form in zip(evaluate(mesh, lambda v: [f(v) for f in forms], [x]), forms):
        np.testing.assert_array_equal(got, form(x))


def test_joining(mesh, rng):
    x, y = rng.standard_normal((2, 3)).astype(np.float32), rng.standard_normal((2, 3)).astype(np.float32)
    got = evaluate(
        mesh,
        lambda a, b: [
            cleave.concatenate([a, b]), cleave.concatenate([a, b, a], axis=-1), cleave.stack([a, b], 1),
            *cleave.split(a, 3, 1),
            cleave.pad(a, ((1, 0), (0, 2))), cleave.pad(a, 1), cleave.expand_dims(a, 1), cleave.squeeze(a[None]),
            cleave.broadcast_to(a[0], (4, 3)), cleave.where(cleave.astype(cleave.equal(a, a[0]), "bool"), a, b),
            cleave.where(cleave.equal(a, b).astype("u8"), 1.0, b),
        ],
        [x, y],
    )  # fmt: skip
    want = [
        np.concatenate([x, y]), np.concatenate([x, y, x], axis=-1), np.stack([x, y], 1), *np.split(x, 3, 1),
        np.pad(x, ((1, 0), (0, 2))), np.pad(x, 1), x[:, None], x, np.broadcast_to(x[0], (4, 3)),
        np.where(x == x[0], x, y),
        np.where(x == y, 1.0, y),
    ]  # fmt: skip
    for g, w in zip(got, want):
        np.testing.assert_array_equal(g, w)


def test_broadcasts_keep_bits(mesh):
    x = np.array([-0.0, INF, np.nan, 1e-45], np.float32)
    (got,) = evaluate(mesh, lambda v: [cleave.broadcast_to(v, (3, 4))], [x])
    assert got.tobytes() == np.broadcast_to(x, (3, 4)).tobytes()


@pytest.mark.parametrize(
    "a, b",
    [((4, 6), (6, 5)), ((6,), (6, 5)), ((4, 6), (6,)), ((6,), (6,)), ((3, 4, 6), (6, 5)), ((3, 4, 6), (3, 6, 5)),
     ((2, 1, 4, 6), (3, 6, 5)), ((1, 4, 6), (3, 6, 5)), ((3, 4, 6), (1, 6, 5)), ((1, 4, 6), (1, 6, 5))],
)  # fmt: skip
def test_matmul(mesh, rng, a, b):
    x, y = rng.standard_normal(a), rng.standard_normal(b)
    close(evaluate(mesh, lambda v, w: v @ w, [x, y])[0], x @ y, terms=6)


@pytest.mark.parametrize(
    "subscripts, shapes",
    [("ik,kj->ij", [(4, 6), (6, 5)]), ("ik,kj", [(4, 6), (6, 5)]), ("bsm,mhd->bshd", [(2, 3, 4), (4, 5, 2)]),
     ("ij->ji", [(3, 4)]), ("ijk->k", [(2, 3, 4)]), ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
     ("ij,j->i", [(3, 4), (4,)]),
     ("ij,kl->i", [(3, 4), (2, 5)]), ("i,j->ji", [(3,), (4,)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
     ("i,i->", [(5,), (5,)])],
)  # fmt: skip
def test_einsum(mesh, rng, subscripts, shapes):
    arrays = [rng.standard_normal(s) for s in shapes]
    close(evaluate(mesh, lambda *v: cleave.einsum(subscripts, *v), arrays)[0], np.einsum(subscripts, *arrays), terms=60)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64"])
def test_float_dtypes(mesh, rng, dtype):
    x, y = rng.standard_normal((4, 6)), rng.standard_normal((6, 5))
    close(evaluate(mesh, lambda v, w: v @ w, [x, y], dtype=dtype)[0], x @ y, dtype, terms=6)


def test_casts_and_integers(mesh):
    i = np.arange(12, dtype=np.int32).reshape(3, 4)
    got = evaluate(mesh, lambda v: [v + v, v.astype("f32") * 0.5, v.astype(np.int64), v.astype(bool), v[1:]], [i])
    for g, w in zip(got, [i + i, i.astype(np.float32) * np.float32(0.5), i.astype(np.int64), i != 0, i[1:]]):
        assert g.dtype == w.dtype
        np.testing.assert_array_equal(g, w)


def test_experts(mesh, rng):
    x, logits = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 3, 5))
    gate_up, down = rng.standard_normal((5, 4, 2, 6)), rng.standard_normal((5, 6, 4))

    def build(x, z, w, d):
        weights, ids = cleave.router(z, 2, normalised=True)
        return [weights, ids, cleave.experts(x, ids, weights, w, d)]

    weights, ids, got = evaluate(mesh, build, [x, logits, gate_up, down], dtype="f64")
    chosen = np.argsort(-logits, -1)[..., :2]
    score = np.exp(np.take_along_axis(logits, chosen, -1))
    np.testing.assert_array_equal(ids, chosen)
    np.testing.assert_allclose(weights, score / score.sum(-1, keepdims=True), rtol=1e-12)
    want = np.zeros_like(x)
    for b, s, k in np.ndindex(2, 3, 2):
        gate, up = np.einsum("m,mjf->jf", x[b, s], gate_up[chosen[b, s, k]])
        want[b, s] += weights[b, s, k] * (gate / (1 + np.exp(-gate)) * up) @ down[chosen[b, s, k]]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_of_transformers(mesh, rng):
    table, ids = rng.standard_normal((11, 6)), rng.integers(0, 11, (2, 5)).astype(np.int32)
    gain, bias = rng.standard_normal(6), rng.standard_normal(6)
    logits, labels = rng.standard_normal((2, 5, 11)), ids.copy()
    labels[0, 0] = -100

    def build(t, i, g, b, z, y):
        x = cleave.embedding(t, i)
        return [
            x, cleave.rms_norm(x, g), cleave.layer_norm(x, g, b), cleave.layer_norm(x, g), cleave.bias_gelu(x, b),
            cleave.cross_entropy(z, y), cleave.count_labels(y), cleave.gated(x.reshape(2, 5, 2, 3), "relu"),
            x.graph.arange(4),
        ]  # fmt: skip

    got = evaluate(mesh, build, [table, ids, gain, bias, logits, labels])
    x = table[ids]
    centred = x - x.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    z = logits - logits.max(-1, keepdims=True)
    nll = np.log(np.exp(z).sum(-1)) - np.take_along_axis(z, ids[..., None].astype(int), -1)[..., 0]
    nll[0, 0] = 0
    halves = x.reshape(2, 5, 2, 3)
    want = [
        x, x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain, normal * gain + bias, normal * gain,
        (x + bias) * 0.5 * (1 + erf((x + bias) / np.sqrt(2))), nll, 9.0,
        np.maximum(halves[:, :, 0], 0) * halves[:, :, 1], np.arange(4),
    ]  # fmt: skip
    for g, w in zip(got, want):
        close(g, w, terms=8)


def test_kernels_attention(mesh, rng):
    B, S, H, K, D = 2, 5, 4, 2, 4
    q, kv = rng.standard_normal((B, S, H, D)), rng.standard_normal((B, S, 2, K, D))
    mask = np.ones((B, S), np.uint8)
    mask[1, 3:] = 0
    got = evaluate(
        mesh, lambda a, b, m: [cleave.attention(a, b), cleave.attention(a, b, causal=False, mask=m)], [q, kv, mask]
    )
    k, v = (np.repeat(kv[:, :, i], H // K, axis=2) for i in (0, 1))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(D)
    for g, seen in zip(got, (np.tril(np.ones((S, S), bool)), (mask[:, None, None] != 0))):
        hidden = np.where(seen, scores, -np.inf)
        p = np.exp(hidden - hidden.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        close(g, np.einsum("bhqk,bkhd->bqhd", p, v), terms=8)


def test_rope_cache_dropout(rng):
    x = rng.standard_normal((1, 3, 2, 4))
    angle = np.arange(3)[:, None] * 10000.0 ** (-np.arange(2) / 2)
    cos, sin = np.cos(angle)[None, :, None], np.sin(angle)[None, :, None]
    lo, hi = x[..., :2], x[..., 2:]
    want = np.concatenate([lo * cos - hi * sin, hi * cos + lo * sin], -1)
    cache, at = np.zeros((1, 6, 2, 4)), np.array(2, np.int32)
    for mesh in ("", "model=2"):
        got = evaluate(
            cleave.Mesh(mesh),
            lambda v, c, o: [cleave.rope(v), cleave.cache_update(c, v, o), cleave.dropout(v, 0.5, key=3)],
            [x, cache, at],
        )
        close(got[0], want, terms=4)
        updated = cache.copy()
        updated[:, 2:5] = x
        close(got[1], updated)
        kept = got[2] != 0
        close(got[2][kept], 2 * x[kept])
        first = got[2] if not mesh else first
        np.testing.assert_array_equal(got[2], first)  # the same on every mesh


def test_gradients_against_differences(mesh, rng):
    """Central differences in f64 of a small network."""
    x, w, u = rng.standard_normal((3, 4)), rng.standard_normal((4, 5)), rng.standard_normal((5, 2))

    def loss(a, b, c):
        return cleave.mean(cleave.square(cleave.tanh(a @ b) @ c - 0.5)) + cleave.sum(cleave.softmax(b) * b)

    def with_gradients(*v):
        made = loss(*v)
        return [made, *cleave.grad(made, list(v))]

    layouts = [None, (None, list(mesh.axes)[-1]) if mesh.axes else None, None]
    got = evaluate(mesh, with_gradients, [x, w, u], layouts, "f64")
    arrays, h = [x, w, u], 1e-6

    def numpy_loss(a, b, c):
        e = np.exp(b - b.max(-1, keepdims=True))
        return np.mean((np.tanh(a @ b) @ c - 0.5) ** 2) + np.sum(e / e.sum(-1, keepdims=True) * b)

    close(got[0], numpy_loss(*arrays), "f64", terms=100)
    for which, gradient in enumerate(got[1:]):
        for at in np.ndindex(*arrays[which].shape):
            moved = [[a.copy() for a in arrays] for _ in range(2)]
            moved[0][which][at] += h
            moved[1][which][at] -= h
            difference = (numpy_loss(*moved[0]) - numpy_loss(*moved[1])) / (2 * h)
            assert abs(difference - gradient[at]) <= 1e-7 * max(1, abs(difference))


def test_every_op_of_the_header_is_there():
    """No builder of graph.h is without its place here."""
    import re

    from conftest import SOURCE

    header = (SOURCE / "include" / "cleave" / "graph.h").read_text()
    builders = set(re.findall(r"^CLV_API clv_value clv_(\w+)\(", header, re.M))
    source = (SOURCE / "python" / "cleave" / "graph.py").read_text()
    used = set(re.findall(r"lib\.clv_(\w+)", source))
    operators = {"add", "sub", "mul", "div", "scale"}  # as clv_binary
    assert builders - used - operators == set()
