#!/usr/bin/env python3
"""Writes stablehlo/: programs as JAX lowers them to StableHLO text, with inputs and results.

    pip install -r requirements.txt && python make_stablehlo.py [NAME...]

SUFFIX is appended to names: scan_remat_jax_0_9 is of JAX 0.9.2 (SUFFIX=_jax_0_9, in an environment with jax==0.9.2).
NAME.mlir is jax.jit(f).lower(...).as_text(debug_info=True); NAME.safetensors has the inputs, by the names of the
arguments, and the results of JAX on the CPU in f32, by the names of the results ("result[0]").
"""
import os
import re
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec as P
from safetensors.numpy import save_file

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stablehlo")
SUFFIX = os.environ.get("SUFFIX", "")
PROGRAMS = {}
B, S, M, H, K, V, F = 2, 6, 16, 4, 2, 13, 24


def program(make):
    PROGRAMS[make.__name__] = make
    return make


def weights(seed=0, **shapes):
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(rng.normal(0, 0.4, shape), jnp.float32) for name, shape in shapes.items()}


def tokens(rows=B, columns=S, seed=1):
    return jnp.asarray(np.random.default_rng(seed).integers(0, V, (rows, columns)), jnp.int32)


def cross_entropy(logits, labels):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)
    return -chosen.mean()


def layer_norm(x, gain, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gain + bias


def rms_norm(x, gain):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain


def rope(x, theta=10000.0):
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None] * theta ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(q, k, v, causal):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


@program
def mlp():
    def loss(p, x, y):
        h = jax.nn.gelu(x @ p["up"] + p["bias"])
        return ((h @ p["down"] - y) ** 2).mean()

    p = weights(up=(M, F), bias=(F,), down=(F, M))
    return jax.value_and_grad(loss), (p, *weights(1, x=(8, M), y=(8, M)).values())


@program
def mlp_forward():
    def forward(p, x):
        return jnp.tanh(x @ p["up"] + p["bias"]) @ p["down"]

    return forward, (weights(up=(M, F), bias=(F,), down=(F, M)), weights(1, x=(8, M))["x"])


def gpt2_loss(p, ids):
    x = p["wte"][ids[:, :-1]] + p["wpe"]
    h = layer_norm(x, p["g1"], p["b1"])
    q, k, v = jnp.split((h @ p["qkv"] + p["bqkv"]).reshape(*h.shape[:2], 3 * H, M // H), 3, axis=2)
    x = x + attention(q, k, v, True).reshape(x.shape) @ p["out"]
    h = layer_norm(x, p["g2"], p["b2"])
    x = x + jax.nn.gelu(h @ p["up"]) @ p["down"]
    return cross_entropy(x @ p["wte"].T, ids[:, 1:])


@program
def gpt2():
    p = weights(wte=(V, M), wpe=(S - 1, M), g1=(M,), b1=(M,), qkv=(M, 3 * M), bqkv=(3 * M,), out=(M, M), g2=(M,),
                b2=(M,), up=(M, F), down=(F, M))
    return jax.value_and_grad(gpt2_loss), (p, tokens())


def llama_layer(x, p):
    D = M // H
    h = rms_norm(x, p["norm1"])
    q = rope((h @ p["q"]).reshape(*x.shape[:2], H, D))
    k = rope((h @ p["k"]).reshape(*x.shape[:2], K, D))
    v = (h @ p["v"]).reshape(*x.shape[:2], K, D)
    k, v = (jnp.repeat(a, H // K, axis=2) for a in (k, v))
    x = x + attention(q, k, v, True).reshape(x.shape) @ p["o"]
    h = rms_norm(x, p["norm2"])
    return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


def llama_weights(layers):
    D = M // H
    shapes = dict(norm1=(M,), q=(M, H * D), k=(M, K * D), v=(M, K * D), o=(H * D, M), norm2=(M,), gate=(M, F),
                  up=(M, F), down=(F, M))
    return weights(embed=(V, M), norm=(M,), head=(M, V)) | {
        "layers": weights(2, **{name: (layers, *shape) for name, shape in shapes.items()})
    }


def llama_logits(p, ids, remat=False):
    layer = jax.checkpoint(llama_layer) if remat else llama_layer
    x, _ = jax.lax.scan(lambda x, p: (layer(x, p), None), p["embed"][ids], p["layers"])
    return rms_norm(x, p["norm"]) @ p["head"]


@program
def llama_forward():
    return llama_logits, (llama_weights(2), tokens())


@program
def llama():
    def loss(p, ids):
        return cross_entropy(llama_logits(p, ids[:, :-1], remat=True), ids[:, 1:])

    return jax.value_and_grad(loss), (llama_weights(2), tokens())


@program
def esm():
    def loss(p, ids, mask):
        D = M // H
        x = p["embed"][ids] * mask[..., None]
        h = layer_norm(x, p["g1"], p["b1"])
        q, k, v = ((h @ p[n]).reshape(*x.shape[:2], H, D) for n in "qkv")
        scores = jnp.einsum("bqhd,bkhd->bhqk", rope(q * D**-0.5), rope(k))
        scores = jnp.where(mask[:, None, None, :] > 0, scores, jnp.finfo(jnp.float32).min)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape) @ p["o"]
        h = layer_norm(x, p["g2"], p["b2"])
        x = x + jax.nn.gelu(h @ p["up"], approximate=False) @ p["down"]
        return cross_entropy(x @ p["embed"].T, ids)

    p = weights(embed=(V, M), g1=(M,), b1=(M,), q=(M, M), k=(M, M), v=(M, M), o=(M, M), g2=(M,), b2=(M,), up=(M, F),
                down=(F, M))
    mask = jnp.asarray(np.arange(S)[None] < np.array([[S], [S - 2]]), jnp.float32)
    return jax.value_and_grad(loss), (p, tokens(), mask)


@program
def scan_remat():
    def loss(w, x):
        def layer(x, w):
            return jnp.tanh(x @ w), x.sum()

        x, sums = jax.lax.scan(jax.checkpoint(layer), x, w)
        return (x * x).sum() + sums.sum()

    return jax.value_and_grad(loss, argnums=(0, 1)), tuple(weights(w=(3, 8, 8), x=(5, 8)).values())


@program
def nnx_layers():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(V, M, rngs=rngs)
            self.norm = nnx.LayerNorm(M, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(H, M, decode=False, rngs=rngs)
            self.scale = nnx.RMSNorm(M, rngs=rngs)
            self.up = nnx.Linear(M, F, rngs=rngs)
            self.down = nnx.Linear(F, V, rngs=rngs)

        def __call__(self, ids):
            x = self.embed(ids)
            x = x + self.attention(self.norm(x))
            return self.down(nnx.relu(self.up(self.scale(x))))

    graph, state = nnx.split(Net(nnx.Rngs(0)))

    def loss(p, ids):
        return cross_entropy(nnx.merge(graph, p)(ids), ids)

    return jax.value_and_grad(loss), (nnx.to_pure_dict(state), tokens())


@program
def adamw():
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(optax.cosine_decay_schedule(1e-2, 100)))

    def step(p, moments, x, y):
        def loss(p):
            return ((jax.nn.relu(x @ p["up"]) @ p["down"] - y) ** 2).mean()

        value, gradient = jax.value_and_grad(loss)(p)
        updates, moments = optimizer.update(gradient, moments, p)
        return optax.apply_updates(p, updates), moments, value

    p = weights(up=(M, F), down=(F, M))
    return step, (p, optimizer.init(p), *weights(1, x=(8, M), y=(8, M)).values())


def annotated(specs, mesh, f, arguments):
    place = jax.tree.map(lambda x, s: jax.device_put(x, NamedSharding(mesh, s)), arguments, specs)
    return f, place


@program
def fsdp():
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def step(p, x, y):
        def loss(p):
            h = jax.lax.with_sharding_constraint(jax.nn.relu(x @ p["up"]), NamedSharding(mesh, P("data", None)))
            return ((h @ p["down"] - y) ** 2).mean()

        value, g = jax.value_and_grad(loss)(p)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, p, g)

    specs = ({"up": P("data", None), "down": P("data", None)}, P("data", None), P("data", None))
    return annotated(specs, mesh, step, (weights(up=(M, F), down=(F, M)), *weights(1, x=(8, M), y=(8, M)).values()))


@program
def tensor_parallel():
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def step(p, x):
        def loss(p):
            h = jax.lax.with_sharding_constraint(jax.nn.gelu(x @ p["up"]), NamedSharding(mesh, P("data", "model")))
            return (jax.lax.with_sharding_constraint(h @ p["down"], NamedSharding(mesh, P("data", None))) ** 2).mean()

        return jax.value_and_grad(loss)(p)

    specs = ({"up": P(None, "model"), "down": P("model", None)}, P("data", None))
    return annotated(specs, mesh, step, (weights(up=(M, F), down=(F, M)), weights(1, x=(8, M))["x"]))


@program
def gspmd():
    """tensor_parallel without Shardy, with an array over both axes, minor first."""
    step, (p, x) = tensor_parallel()
    mesh = x.sharding.mesh
    y = jax.device_put(weights(4, y=(8, M))["y"], NamedSharding(mesh, P(None, ("model", "data"))))
    return lambda p, x, y: (step(p, x), x @ y.T), (p, x, y)


@program
def unreduced():
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    jax.set_mesh(mesh)

    def partial(x, w):
        y = jnp.einsum("tm,mf->tf", x, w, out_sharding=P("data", None, unreduced={"model"}))
        return jax.sharding.reshard(y, P("data", "model"))

    return annotated((P("data", "model"), P("model", None)), mesh, partial, tuple(weights(x=(8, M), w=(M, F)).values()))


@program
def shard_map():
    mesh = jax.make_mesh((4,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))

    @jax.shard_map(mesh=mesh, in_specs=(P(), P(None, "model"), P("model", None)), out_specs=P())
    def block(x, up, down):
        return jax.lax.psum(jax.nn.relu(x @ up) @ down, "model")

    return block, tuple(weights(x=(8, M), up=(M, F), down=(F, M)).values())


@program
def moe():
    def loss(p, x):
        gates = jax.nn.softmax(x @ p["router"])
        best = jax.nn.one_hot(gates.argmax(-1), 4)
        routed = jnp.einsum("td,te->etd", x, best)
        h = jax.nn.silu(jnp.einsum("etd,edf->etf", routed, p["up"]))
        y = jnp.einsum("etf,efd->etd", h, p["down"])
        return (jnp.einsum("etd,te,te->td", y, best, gates) ** 2).mean()

    p = weights(router=(M, 4), up=(4, M, F), down=(4, F, M))
    return jax.value_and_grad(loss), (p, weights(1, x=(8, M))["x"])


@program
def grouped_attention():
    def loss(p, x):
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, p[n]) for n in "qkv")
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return (jnp.einsum("bshd,hdm->bsm", y, p["o"]) ** 2).mean()

    D = M // H
    p = weights(q=(M, H, D), k=(M, K, D), v=(M, K, D), o=(H, D, M))
    return jax.value_and_grad(loss), (p, weights(1, x=(B, S, M))["x"])


@program
def bf16_attention():
    loss, arguments = grouped_attention()
    return loss, jax.tree.map(lambda a: a.astype(jnp.bfloat16), arguments)


def split_halves(x):
    return jnp.split(x, 2, axis=-1)


def pairs_of(x):
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    return pairs[..., 0], pairs[..., 1]


def joined(a, b):
    return jnp.stack([a, b], -1).reshape(*a.shape[:-1], -1)


def rope_tables(x, positions, theta=10000.0):
    """Cosines and sines of MaxText: positions are data, [B, S, 1, D/2]."""
    scale = theta ** (2 * jnp.arange(x.shape[-1] // 2) / x.shape[-1])
    angle = positions[:, :, None, None] / scale
    return jnp.cos(angle), jnp.sin(angle)


def twice(table):
    return jnp.concatenate([table, table], -1)


@program
def rope_forms():
    def loss(p, positions):
        cos, sin = rope_tables(p["split"], positions)
        a, b = split_halves(p["split"])
        split = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
        a, b = split_halves(p["turned"])
        turned = p["turned"] * twice(cos) + jnp.concatenate([-b, a], -1) * twice(sin)
        a, b = pairs_of(p["pairs"])
        pairs = joined(a * cos - b * sin, b * cos + a * sin)
        a, b = p["strided"][..., ::2], p["strided"][..., 1::2]
        strided = p["strided"] * jnp.repeat(cos, 2, -1) + joined(-b, a) * jnp.repeat(sin, 2, -1)
        a, b = split_halves(p["rows"])  # [B, H, S, D]
        rows_cos, rows_sin = (table.swapaxes(1, 2) for table in (cos, sin))
        rows = jnp.concatenate([a * rows_cos - b * rows_sin, b * rows_cos + a * rows_sin], -1)
        return sum((jnp.sin(y) * w).sum() for y, w in zip((split, turned, pairs, strided, rows), (1, 2, 3, 4, 5)))

    shape = (B, S, H, 8)
    p = weights(split=shape, turned=shape, pairs=shape, strided=shape, rows=(B, H, S, 8))
    return jax.value_and_grad(loss), (p, jnp.asarray([[0, 1, 2, 3, 4, 5], [0, 1, 2, 0, 1, 900]], jnp.int32))


@program
def rope_like():
    """A wrong sign, a factor, cosines of another pair, another dimension, elements of another tensor, sines of another
    shape, products of 16 bits: not rope."""
    def loss(x, y, positions):
        cos, sin = rope_tables(x, positions)
        a, b = split_halves(x)
        other = split_halves(y)[1]
        sign = jnp.concatenate([a * cos + b * sin, b * cos + a * sin], -1)
        factor = jnp.concatenate([a * cos - 1.5 * b * sin, b * cos + a * sin], -1)
        flipped = jnp.concatenate([a * cos - b * sin, b * cos[..., ::-1] + a * sin], -1)
        dimension = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], 2)
        tensor = jnp.concatenate([a * cos - b * sin, other * cos + a * sin], -1)
        of_heads = sin * jnp.arange(1.0, H + 1)[:, None]
        shapes = jnp.concatenate([a * cos - b * of_heads, b * cos + a * of_heads], -1)
        products = [(u * v).astype(jnp.bfloat16).astype(x.dtype) for u, v in ((a, cos), (b, sin), (b, cos), (a, sin))]
        rounded = jnp.concatenate([products[0] - products[1], products[2] + products[3]], -1)
        found = (sign, factor, flipped, dimension, tensor, shapes, rounded)
        return sum((jnp.sin(z) * w).sum() for w, z in enumerate(found, 1))

    p = weights(x=(B, S, H, 8), y=(B, S, H, 8))
    positions = jnp.asarray(np.arange(2 * S).reshape(B, S), jnp.int32)
    return jax.value_and_grad(loss, argnums=(0, 1)), (p["x"], p["y"], positions)


def masked_attention(q, k, v, mask, hidden=-1e30):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, hidden)), v)


def attention_inputs():
    p = weights(q=(3, S, H, 8), k=(3, S, H, 8), v=(3, S, H, 8), few_k=(3, S, K, 8), few_v=(3, S, K, 8))
    keys = jnp.asarray([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]], bool)
    return p, keys


@program
def padding_attention():
    """Padding on the right, on the left, and everywhere: rows that see no key have the mean of all values."""
    p, keys = attention_inputs()

    def loss(p, keys, lengths):
        causal = jnp.tril(jnp.ones((S, S), bool))
        whole = masked_attention(p["q"], p["k"], p["v"], keys[:, None, None])
        both = masked_attention(p["q"], p["k"], p["v"], keys[:, None, None] & causal)
        grouped = jax.nn.dot_product_attention(p["q"], p["few_k"], p["few_v"], mask=keys[:, None, None], is_causal=True)
        counted = jax.nn.dot_product_attention(p["q"], p["k"], p["v"], key_value_seq_lengths=lengths)
        finite = masked_attention(p["q"], p["k"], p["v"], jnp.arange(S) < lengths[:, None, None, None], -jnp.inf)
        return sum((jnp.sin(y) * w).sum() for y, w in zip((whole, both, grouped, counted, finite), (1, 2, 3, 4, 5)))

    return jax.value_and_grad(loss), (p, keys, jnp.asarray([6, 3, 1], jnp.int32))


@program
def padding_like():
    """Segments of packed documents, a mask of heads, padding in a window, two hidden numbers, one too small, a scale
    between masks, zeros of queries by the mask of keys."""
    p, keys = attention_inputs()

    def loss(p, keys, segments, heads):
        qkv, causal = (p["q"], p["k"], p["v"]), jnp.tril(jnp.ones((S, S), bool))
        some = keys | (jnp.arange(S) < 2)
        packed = masked_attention(*qkv, (segments[:, :, None] == segments[:, None])[:, None] & causal)
        of_heads = masked_attention(*qkv, heads[None, :, None])
        window = masked_attention(*qkv, keys[:, None, None] & causal & ~jnp.tril(jnp.ones((S, S), bool), -3))
        small = masked_attention(*qkv, keys[:, None, None], -20.0)
        scores = jnp.einsum("bqhd,bkhd->bhqk", p["q"], p["k"])
        scores = jnp.where(causal, jnp.where(keys[:, None, None], scores, -1e10), -1e30)
        two = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), p["v"])
        scores = jnp.einsum("bqhd,bkhd->bhqk", p["q"], p["k"])
        scores = jnp.where(causal, jnp.where(keys[:, None, None], scores, -1e10) / 2, -1e10)
        between = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), p["v"])
        scores = jnp.where(some[:, None, None], jnp.einsum("bqhd,bkhd->bhqk", p["q"], p["k"]), -jnp.inf)
        scores = jnp.where(some[:, None, :, None], jax.nn.softmax(scores), 0)
        queries = jnp.einsum("bhqk,bkhd->bqhd", scores, p["v"])
        found = (packed, of_heads, window, small, two, between, queries)
        return sum((jnp.sin(y) * w).sum() for w, y in enumerate(found, 1))

    segments = jnp.asarray([[0, 0, 0, 1, 1, 1], [0, 1, 1, 2, 2, 2], [0, 0, 0, 0, 0, 0]], jnp.int32)
    heads = jnp.asarray(np.arange(H * S).reshape(H, S) % 3 > 0)
    return jax.value_and_grad(loss), (p, keys, segments, heads)


@program
def dropout():
    def loss(p, key, step, x):
        key = jax.random.fold_in(key, step)
        h = jax.nn.relu(x @ p["up"])
        h = jnp.where(jax.random.bernoulli(key, 0.75, h.shape), h / 0.75, 0)
        return ((h @ p["down"]) ** 2).mean()

    p = weights(up=(M, F), down=(F, M))
    return jax.value_and_grad(loss), (p, jax.random.PRNGKey(7), jnp.int32(3), weights(1, x=(8, M))["x"])


@program
def sampling():
    def f(x, ids):
        values, best = jax.lax.top_k(x, 3)
        chosen = jnp.where(jnp.cumsum(jax.nn.softmax(values), -1) <= 0.9, best, -1)
        counts = jnp.cumsum(ids, 0)
        return chosen, counts, ids @ ids.T, x[::-1, ::-1], jnp.sort(x, 0), jnp.argsort(-x, 1), jax.lax.cummax(x, 1)

    return f, (weights(x=(6, 9))["x"], tokens(6, 9))


@program
def unsigned():
    """Folds of ui32, which wrap around."""

    def f(x, y):
        most, more = (-(jnp.abs(a) * 10 + 1).astype(jnp.uint32) for a in (x, y))
        added = jnp.zeros(x.shape, jnp.uint32).at[jnp.array([0, 0, 1, 3])].add(most)
        return most.sum(0), jnp.cumsum(more, 0), jnp.prod(more, 1), added

    return f, tuple(weights(x=(4, 8), y=(4, 8)).values())


@program
def window_attention():
    """Sliding windows: by jax.nn, and by comparisons of positions in two forms; with gradients."""

    def seen(form, rows):
        i, j = jnp.arange(rows)[:, None], jnp.arange(rows)[None]
        return (i >= j) & (i - j < 3) if form == 0 else (j <= i) & (j > i - 2)

    def attend(p, form):
        if form == 2:
            return jax.nn.dot_product_attention(*p, is_causal=True, local_window_size=(3, 0))
        q, k, v = p
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.3
        scores = jnp.where(seen(form, q.shape[1]), scores, -1e30)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)

    def f(p):
        values = jax.value_and_grad(lambda p: sum((attend(p, form) ** 2).sum() for form in range(3)))(p)
        return values, [attend(p, form) for form in range(3)]

    return f, (tuple(weights(q=(B, 9, H, 4), k=(B, 9, H, 4), v=(B, 9, H, 4)).values()),)


@program
def converts():
    """Floats to integers: truncated, as near as the type has a number. Names with what text escapes."""

    def f(p):
        x = p['a"b\\ \u00e9']
        return {'to "x"': [x.astype(t) for t in ("uint32", "int32", "uint8")], "twice": (x * 2).astype(jnp.uint32)}

    x = [-1.5, -0.3, np.nan, np.inf, -np.inf, 3e9, 5e9, -3e9, 1e20, -1e20, 2.9, 0]
    return f, ({'a"b\\ \u00e9': jnp.asarray(x, jnp.float32)},)


@program
def branches():
    """Branches that depend on values, roundings to a format, and normal numbers."""

    def loss(w, key, x, i, good):
        y = jax.lax.cond(x.sum() > 0, lambda x: jnp.tanh(x @ w), lambda x: 2 * jnp.cos(x @ w), x)
        y = jax.lax.switch(i, [jnp.sin, jnp.cos, lambda y: y @ y.T @ y], y) + jax.random.normal(key, x.shape)
        y, n = jax.lax.cond(good, lambda: (y, 1), lambda: (y / 0, 2))
        return (jax.lax.reduce_precision(y, 8, 23) * jax.lax.reduce_precision(x, 8, 7)).mean(), n

    x, w = weights(x=(6, 8), w=(8, 8)).values()
    ends = jnp.array([0, 0.5, 0.999999, -0.9999999, 1e-8], jnp.float32)

    def f(w, key, x, i, good):
        return jax.value_and_grad(loss, has_aux=True)(w, key, x, i, good), jax.scipy.special.erfinv(ends + 0 * i)

    return f, (w, jax.random.PRNGKey(5), x, jnp.int32(7), jnp.array(True))


@program
def convolution():
    def f(x, w):
        return jax.lax.conv(x, w, (1, 1), "SAME")

    return f, tuple(weights(x=(1, 3, 8, 8), w=(4, 3, 3, 3)).values())


def names(prefix, tree):
    return [prefix + jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


def unescaped(text):
    """What a string of MLIR stands for."""
    def byte(found):
        return {b"n": b"\n", b"t": b"\t"}.get(found[1]) or (bytes.fromhex(found[1].decode()) if found[1][1:] else found[1])

    return re.sub(rb"\\([0-9A-F]{2}|.)", byte, text.encode()).decode()


GSPMD = {"gspmd"}  # without Shardy
FULL = {"mlp", "gpt2"}  # locations with the whole stack; the others have the innermost frame


def write(name):
    jax.config.update("jax_include_full_tracebacks_in_locations", name in FULL)
    jax.config.update("jax_use_shardy_partitioner", name not in GSPMD)
    f, arguments = PROGRAMS[name]()
    jitted = jax.jit(f)
    lowered = jitted.lower(*arguments)
    text = lowered.as_text(debug_info=True)
    text = re.sub(r'"/[^"]*/(make_\w+\.py|site-packages/[^"]*)"', r'"\1"', text)
    with open(os.path.join(FOLDER, name + SUFFIX + ".mlir"), "w") as file:
        file.write(text)
    main = text[text.index("@main(") :]
    arguments_text = main[: main.index("\n")]
    located = dict(re.findall(r'^(#loc\d*) = loc\("(.*?)"\)$', text, re.M))
    found = re.findall(r'%arg\d+: .*?loc\(("[^"]*"|#loc\d*)\)', arguments_text)
    labels = [unescaped(x.strip('"') if x[0] == '"' else located[x]) for x in found]
    kept = lowered._lowering.compile_args["kept_var_idx"]
    flat = [x for i, x in enumerate(jax.tree.leaves(arguments)) if i in kept]
    assert len(labels) == len(flat), (labels, len(flat))
    values = dict(zip(labels, flat))
    results = jitted(*arguments)
    values |= dict(zip(names("result", results), jax.tree.leaves(results)))
    values = {k: np.int64(v) if getattr(v, "dtype", None) == jnp.uint32 else v for k, v in values.items()}
    values = {k: np.float32(v) if getattr(v, "dtype", None) == jnp.bfloat16 else v for k, v in values.items()}
    save_file({k: np.array(v, order="C") for k, v in values.items()},
              os.path.join(FOLDER, name + SUFFIX + ".safetensors"))
    os.chmod(os.path.join(FOLDER, name + SUFFIX + ".safetensors"), 0o644)
    print(name, len(text), sorted(set(re.findall(r"(?:stablehlo|chlo|sdy|mhlo)\.[a-z_]+", text))))


def main():
    os.makedirs(FOLDER, exist_ok=True)
    for name in sys.argv[1:] or PROGRAMS:
        write(name)


if __name__ == "__main__":
    main()
