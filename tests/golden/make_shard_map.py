#!/usr/bin/env python3
"""Writes stablehlo/shard_map_*.mlir: manual SPMD (jax.shard_map), with inputs and results, as make_stablehlo.py does.

    python make_shard_map.py [NAME...]
"""
import make_stablehlo as programs
from make_stablehlo import F, H, M, P, S, jax, jnp, program, weights

lax = jax.lax
programs.PROGRAMS.clear()


def mesh(**axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(jax.sharding.AxisType.Auto,) * len(axes))


def mapped(f, axes, in_specs, out_specs, **options):
    return jax.shard_map(f, mesh=axes, in_specs=in_specs, out_specs=out_specs, **options)


@program
def shard_map_collectives():
    axes = mesh(data=2, model=2)
    both, rows = P("data", "model"), P(("data", "model"))
    ring = [(0, 1), (1, 0)]

    def each(f, in_specs, out_specs, **options):
        return lambda x: mapped(f, axes, in_specs, out_specs, check_vma=False, **options)(x)

    cases = {
        "psum": each(lambda x: lax.psum(x, "model"), both, P("data")),
        "psum_both": each(lambda x: lax.psum(x, ("data", "model")), both, P()),
        "psum_int": each(lambda x: lax.psum(x.astype(jnp.int32), "model"), both, P("data")),
        "psum_alike": each(lambda x: lax.psum(x, "model"), P("data"), P("data")),
        "pmean": each(lambda x: lax.pmean(x, "model"), both, P("data")),
        "pmax": each(lambda x: lax.pmax(x, "data"), both, P(None, "model")),
        "pmin": each(lambda x: lax.pmin(x, ("data", "model")), both, P()),
        "gather": each(lambda x: lax.all_gather(x, "model"), both, P(None, "data")),
        "gather_tiled": each(lambda x: lax.all_gather(x, "model", axis=1, tiled=True), both, P("data")),
        "gather_order": each(lambda x: lax.all_gather(x, ("model", "data"), axis=0, tiled=True),
                             P(("model", "data")), P()),
        "scatter": each(lambda x: lax.psum_scatter(x, "model", scatter_dimension=0, tiled=True), P("data"), rows),
        "scatter_dim": each(lambda x: lax.psum_scatter(x, "data", scatter_dimension=1, tiled=True),
                            P("data"), P(None, "data")),
        "scatter_both": each(lambda x: lax.psum_scatter(x, ("data", "model"), scatter_dimension=0, tiled=True),
                             P(None, None), rows),
        "all_to_all": each(lambda x: lax.all_to_all(x, "model", 0, 1, tiled=True), both, rows),
        "all_to_all_back": each(lambda x: lax.all_to_all(x, "model", 1, 0, tiled=True), rows, both),
        "all_to_all_axis": each(lambda x: lax.all_to_all(x.reshape(2, 2, 2), "model", 0, 2), both, rows),
        "all_to_all_same": each(lambda x: lax.all_to_all(x, "data", 0, 0, tiled=True), P(None, "model"),
                                P("data", "model")),
        "permute": each(lambda x: lax.ppermute(x, "model", ring), both, both),
        "permute_part": each(lambda x: lax.ppermute(x, "data", [(0, 1)]), both, both),
        "index": each(lambda x: x * lax.axis_index("model") + 10 * lax.axis_index(("data", "model")), both, both),
        "slice": each(lambda x: lax.dynamic_slice_in_dim(x, 2 * lax.axis_index("model"), 2, 1), P("data"), both),
        "update": each(lambda x: lax.psum(lax.dynamic_update_slice(
            jnp.zeros((4, 4)), x, (0, 2 * lax.axis_index("model"))), "model"), both, P("data")),
        "take": each(lambda x: x[(x[:, 0] > 0).astype(jnp.int32)], both, both),
        "ops": each(lambda x: jnp.pad(jnp.concatenate([x.T, 2 * x.T])[1:, ::2], ((0, 1), (1, 1))).sum(1), both, rows),
        "partial": each(lambda x: lax.psum(jnp.tanh(x) @ x.T, "model") + lax.axis_index("model"), P(None, "model"),
                        P(None, None), axis_names={"model"}),
    }
    return lambda x: {name: f(x) for name, f in cases.items()}, (weights(x=(8, 4))["x"],)


@program
def shard_map_ring():
    """A matmul whose weights go round a ring: scan, ppermute and axis_index."""
    axes = mesh(model=4)

    def layer(x, w):
        def turn(carry, i):
            w, out = carry
            at = (lax.axis_index("model") + i) % 4
            out = lax.dynamic_update_slice(out, x @ w, (0, at * (F // 4)))
            return (lax.ppermute(w, "model", [((d + 1) % 4, d) for d in range(4)]), out), None

        start = lax.pcast(jnp.zeros((2, F)), "model", to="varying")
        return lax.scan(turn, (w, start), jnp.arange(4))[0][1]

    return mapped(layer, axes, (P("model"), P(None, "model")), P("model")), tuple(weights(x=(8, M), w=(M, F)).values())


@program
def shard_map_ring_sum():
    """A sum that goes round a ring: devices have the same, which no rule says."""
    def total(x):
        part, out = x, x
        for _ in range(3):
            part = lax.ppermute(part, "model", [(d, (d + 1) % 4) for d in range(4)])
            out = out + part
        return out

    return mapped(total, mesh(model=4), P("model"), P(), check_vma=False), (jnp.arange(8.0).reshape(4, 2),)


@program
def shard_map_attention():
    """Ring attention, and keys that are split with one psum: softmaxes whose parts are joined as they should be."""
    axes = mesh(model=4)

    def ring(q, k, v):
        def turn(carry, _):
            k, v, most, total, out = carry
            scores = q @ k.T
            new = jnp.maximum(most, scores.max(-1))
            share, old = jnp.exp(scores - new[:, None]), jnp.exp(most - new)
            k, v = (lax.ppermute(x, "model", [(d, (d + 1) % 4) for d in range(4)]) for x in (k, v))
            return (k, v, new, total * old + share.sum(-1), out * old[:, None] + share @ v), None

        start = [lax.pcast(jnp.full(q.shape[0], x), "model", to="varying") for x in (-1e30, 0.0)]
        _, _, _, total, out = lax.scan(turn, (k, v, *start, jnp.zeros_like(q)), None, length=4)[0]
        return out / total[:, None]

    def split_keys(q, k, v):
        scores = q @ k.T
        share = jnp.exp(scores - lax.pmax(scores.max(-1), "model")[:, None])
        return lax.psum(share @ v, "model") / lax.psum(share.sum(-1), "model")[:, None]

    def both(q, k, v):
        return (mapped(ring, axes, P("model"), P("model"))(q, k, v),
                mapped(split_keys, axes, (P(), P("model"), P("model")), P(), check_vma=False)(q, k, v))

    return both, tuple(weights(q=(8, M), k=(8, M), v=(8, M)).values())


@program
def shard_map_vocabulary():
    """Embedding and cross-entropy with a sharded vocabulary, and their gradients."""
    def mine(ids, size):
        at = ids - lax.axis_index("model") * size
        return jnp.clip(at, 0, size - 1), (at >= 0) & (at < size)

    def loss(table, head, ids):
        at, own = mine(ids, table.shape[0])
        logits = lax.psum(jnp.where(own[:, None], table[at], 0), "model") @ head
        most = lax.pmax(lax.stop_gradient(logits.max(-1)), "model")
        total = lax.psum(jnp.exp(logits - most[:, None]).sum(-1), "model")
        at, own = mine(ids, head.shape[1])
        chosen = lax.psum(jnp.where(own, jnp.take_along_axis(logits, at[:, None], 1)[:, 0], 0), "model")
        return (jnp.log(total) + most - chosen).mean()

    f = mapped(loss, mesh(model=4), (P("model"), P(None, "model"), P()), P(), check_vma=False)
    return jax.value_and_grad(f, argnums=(0, 1)), (*weights(table=(8, M), head=(M, 8)).values(),
                                                   jnp.asarray([3, 1, 7, 0, 5], jnp.int32))


def block(p, x):
    """Megatron's layer with sequence parallelism: x [S / model, B / data, M]."""
    heads, D = H // 2, M // H
    h = lax.all_gather(x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p["gain"], "model", tiled=True)
    q, k, v = ((h @ p[n]).reshape(*h.shape[:2], heads, D) for n in "qkv")
    scores = jnp.einsum("qbhd,kbhd->bhqk", q, k) / D**0.5
    out = jnp.einsum("bhqk,kbhd->qbhd", jax.nn.softmax(scores), v).reshape(*h.shape[:2], M // 2)
    x = x + lax.psum_scatter(out @ p["o"], "model", tiled=True)
    h = lax.all_gather(x, "model", tiled=True)
    return x + lax.psum_scatter(jax.nn.gelu(h @ p["up"]) @ p["down"], "model", tiled=True)


SPECS = {"gain": P(), "q": P(None, "model"), "k": P(None, "model"), "v": P(None, "model"), "o": P("model"),
         "up": P(None, "model"), "down": P("model")}


def block_weights():
    return weights(gain=(M,), q=(M, M), k=(M, M), v=(M, M), o=(M, M), up=(M, F), down=(F, M))


def block_step(axes, check_vma):
    def loss(p, x):
        def total(p, x):
            return lax.psum((block(p, x) ** 2).sum(), ("data", "model"))

        return mapped(total, axes, (SPECS, P("model", "data")), P(), check_vma=check_vma)(p, x)

    return jax.value_and_grad(loss), (block_weights(), weights(3, x=(S, 4, M))["x"])


@program
def shard_map_block():
    return block_step(mesh(data=2, model=2), True)


@program
def shard_map_unchecked():
    return block_step(mesh(data=2, model=2), False)


@program
def shard_map_patterns():
    """What has a fused op, of a device's part: norms, causal attention, gelu, cross-entropy."""
    def loss(p, x, ids):
        h = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p["gain"]
        q, k, v = ((h @ p[n]).reshape(*h.shape[:2], H // 2, M // H) for n in "qkv")
        out = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(*h.shape[:2], M // 2)
        x = x + lax.psum(out @ p["o"], "model")
        h = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * p["gain"] + p["bias"]
        x = x + lax.psum(jax.nn.gelu(h @ p["up"]) @ p["down"], "model")
        logits = x @ p["head"]
        return lax.pmean(-jnp.take_along_axis(jax.nn.log_softmax(logits), ids[..., None], -1).mean(), "data")

    p = block_weights() | weights(4, head=(M, 8), bias=(M,))
    specs = SPECS | {"head": P(), "bias": P()}
    f = mapped(loss, mesh(data=2, model=2), (specs, P("data"), P("data")), P())
    return f, (p, weights(3, x=(4, S, M))["x"], jnp.asarray([[3, 1, 7, 0, 5, 2][i % 6] for i in range(4 * S)],
                                                            jnp.int32).reshape(4, S))


if __name__ == "__main__":
    programs.main()
