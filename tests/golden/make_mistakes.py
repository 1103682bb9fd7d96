#!/usr/bin/env python3
"""Writes stablehlo/mistake_*.mlir: mistakes that were reported of Megatron-LM, PyTorch, XLA and others, rebuilt small
with jax.shard_map, with check_vma off where it would refuse them. result['wrong'] has the mistake, result['right'] has
not. docs/programs.md lists the reports.

    python make_mistakes.py [NAME...]
"""
import make_shard_map as programs
from make_shard_map import F, M, P, jax, jnp, lax, mapped, mesh, program, weights

programs.programs.PROGRAMS.clear()
V, E = 8, 4
MODEL = dict(model=4)


def mistake(axes, in_specs, out_specs, arguments, wrong, right):
    def step(*arguments):
        return {name: mapped(f, axes, in_specs, out_specs, check_vma=False)(*arguments)
                for name, f in (("wrong", wrong), ("right", right))}

    return step, tuple(arguments.values())


def rms_norm(x, gain):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain


@program
def mistake_norm_gradient():
    """The gradient of a norm's gain under sequence parallelism: each rank has that of its tokens."""
    def gradient(gain, x):
        return jax.grad(lambda gain: (rms_norm(x, gain) ** 2).sum())(gain)

    return mistake(mesh(**MODEL), (P(), P("model")), P(), weights(gain=(M,), x=(8, M)), gradient,
                   lambda gain, x: lax.psum(gradient(gain, x), "model"))


@program
def mistake_shared_norm():
    """A norm that all heads share, whose gradient each rank has of its heads; no sequence parallelism."""
    def gradient(gain, w, x):
        heads = (x @ w).reshape(8, -1, 4)
        return jax.grad(lambda gain: jnp.tanh(rms_norm(heads, gain)).sum())(gain)

    return mistake(mesh(**MODEL), (P(), P(None, "model"), P()), P(), weights(gain=(4,), w=(M, 32), x=(8, M)), gradient,
                   lambda *a: lax.psum(gradient(*a), "model"))


@program
def mistake_router_gradient():
    """The gradient of a router, whose experts are sharded: each rank has that of its experts."""
    def gradient(router, up, x):
        def loss(router):
            gates = jax.nn.softmax(x @ router)
            mine = lax.dynamic_slice_in_dim(gates, lax.axis_index("model") * (E // 2), E // 2, 1)
            return jnp.einsum("td,edf,te->tf", x, up, mine).sum()

        return jax.grad(loss)(router)

    return mistake(mesh(model=2), (P(), P("model"), P()), P(), weights(router=(M, E), up=(E, M, F), x=(8, M)),
                   gradient, lambda *a: lax.psum(gradient(*a), "model"))


@program
def mistake_expert_gradient():
    """The gradient of experts whose tokens were exchanged by all_to_all is whole: a psum doubles what is the same."""
    def gradient(up, x, whole):
        loss = lambda up: (jnp.einsum("td,df->tf", x, up) ** 2).sum()
        return lax.psum(jax.grad(loss)(up), ("data", "model") if whole else "data")

    return mistake(mesh(data=2, model=2), (P(), P("data")), P(), weights(up=(M, F), x=(8, M)),
                   lambda up, x: gradient(up, x, True), lambda up, x: gradient(up, x, False))


@program
def mistake_row_bias():
    """A row-parallel linear that adds its bias before the psum."""
    def linear(x, w, bias):
        return lax.psum(x @ w + bias, "model")

    return mistake(mesh(**MODEL), (P(None, "model"), P("model"), P()), P(), weights(x=(8, M), w=(M, F), bias=(F,)),
                   linear, lambda x, w, bias: lax.psum(x @ w, "model") + bias)


@program
def mistake_split_norm():
    """A norm over a width that is sharded, of each rank's part alone."""
    def norm(x, gain, total):
        return x * lax.rsqrt(total((x * x).sum(-1, keepdims=True)) / M + 1e-5) * gain

    return mistake(mesh(**MODEL), (P(None, "model"), P("model")), P(None, "model"), weights(x=(8, M), gain=(M,)),
                   lambda x, gain: norm(x, gain, lambda s: s),
                   lambda x, gain: norm(x, gain, lambda s: lax.psum(s, "model")))


@program
def mistake_activation():
    """An activation of a partial sum: the psum comes after it."""
    return mistake(mesh(**MODEL), (P(None, "model"), P("model")), P(), weights(x=(8, M), w=(M, F)),
                   lambda x, w: lax.psum(jax.nn.gelu(x @ w), "model"),
                   lambda x, w: jax.nn.gelu(lax.psum(x @ w, "model")))


@program
def mistake_gradient_norm():
    """A gradient norm that counts replicated parameters once for each rank."""
    def total(split, replicated):
        return lax.psum((split ** 2).sum() + (replicated ** 2).sum(), "model") ** 0.5

    return mistake(mesh(**MODEL), (P("model"), P()), P(), weights(split=(M, F), replicated=(M,)), total,
                   lambda split, replicated: (lax.psum((split ** 2).sum(), "model") + (replicated ** 2).sum()) ** 0.5)


@program
def mistake_wrong_group():
    """A gradient that is reduced over the wrong group."""
    def gradient(w, x, axis):
        return lax.psum(jax.grad(lambda w: ((x @ w) ** 2).sum())(w), axis)

    return mistake(mesh(data=2, model=2), (P(), P("data")), P(), weights(w=(M, F), x=(8, M)),
                   lambda w, x: gradient(w, x, "model"), lambda w, x: gradient(w, x, "data"))


@program
def mistake_data_gradient():
    """A weight sharded over model: its gradient is not reduced over data."""
    def gradient(w, x):
        return jax.grad(lambda w: ((x @ w) ** 2).sum())(w)

    return mistake(mesh(data=2, model=2), (P(None, "model"), P("data")), P(None, "model"), weights(w=(M, F), x=(8, M)),
                   gradient, lambda w, x: lax.psum(gradient(w, x), "data"))


@program
def mistake_psum_twice():
    """A loss that is summed in a helper, and once more outside of it."""
    def loss(x):
        return lax.psum((x ** 2).sum(), "model")

    return mistake(mesh(**MODEL), (P("model"),), P(), weights(x=(8, M)), lambda x: lax.psum(loss(x), "model"), loss)


@program
def mistake_psum_gradient():
    """A gradient through a psum, which without check_vma sums cotangents that are the same."""
    def gradient(w, x):
        return jax.grad(lambda w: lax.psum(((x @ w) ** 2).sum(), "data"))(w)

    return mistake(mesh(data=4), (P(), P("data")), P(), weights(w=(M, F), x=(8, M)),
                   lambda w, x: lax.psum(gradient(w, x), "data"), lambda w, x: lax.pmean(gradient(w, x), "data"))


@program
def mistake_gathered():
    """Logits that are sharded, and said to be whole."""
    return mistake(mesh(**MODEL), (P(), P(None, "model")), P(), weights(x=(8, M), head=(M, V)),
                   lambda x, head: x @ head, lambda x, head: lax.all_gather(x @ head, "model", axis=1, tiled=True))


@program
def mistake_local_softmax():
    """Cross-entropy of sharded logits with each rank's own sum of exponentials."""
    def loss(x, head, total):
        logits = x @ head
        return lax.psum(logits.sum(), "model") / V - jnp.log(total(jnp.exp(logits).sum(-1))).mean()

    return mistake(mesh(**MODEL), (P(), P(None, "model")), P(), weights(x=(8, M), head=(M, V)),
                   lambda x, head: lax.pmean(loss(x, head, lambda s: s), "model"),
                   lambda x, head: loss(x, head, lambda s: lax.psum(s, "model")))


@program
def mistake_split_softmax():
    """A softmax over a dimension that is sharded, of each rank's part alone."""
    def right(x, v):
        most = lax.pmax(lax.stop_gradient(x.max(-1, keepdims=True)), "model")
        e = jnp.exp(x - most)
        return lax.psum((e / lax.psum(e.sum(-1, keepdims=True), "model")) @ v, "model")

    return mistake(mesh(**MODEL), (P(None, "model"), P("model")), P(), weights(x=(6, 8), v=(8, M)),
                   lambda x, v: lax.psum(jax.nn.softmax(x, axis=-1) @ v, "model"), right)


@program
def mistake_split_log_softmax():
    """The same of a logarithm; each rank's part with a weight of its own is right."""
    def right(x):
        most = x.max(-1, keepdims=True)
        mine = jnp.exp(x - most).sum(-1, keepdims=True)
        local = jnp.exp(x - most) / mine
        both = lax.pmax(most, "model")
        weight = mine * jnp.exp(most - both)
        return jnp.log(local * (weight / lax.psum(weight, "model")))

    return mistake(mesh(**MODEL), (P(None, "model"),), P(None, "model"), weights(x=(6, 8)),
                   lambda x: jax.nn.log_softmax(x, axis=-1), right)


@program
def mistake_psum_of_means():
    """A loss that is a mean on each rank, and summed over them: as many times too large as there are ranks."""
    def loss(x, y):
        return ((jnp.tanh(x) - y) ** 2).mean()

    return mistake(mesh(data=4), (P("data"), P("data")), P(), weights(x=(8, M), y=(8, M)),
                   lambda x, y: lax.psum(loss(x, y), "data"), lambda x, y: lax.pmean(loss(x, y), "data"))


@program
def mistake_mean_gradient():
    """The gradient of a mean on each rank, summed over them as that of a sum would be."""
    def gradient(up, down, x, y):
        return jax.grad(lambda up: ((jnp.tanh(x @ up) @ down - y) ** 2).mean())(up)

    return mistake(mesh(data=2), (P(), P(), P("data"), P("data")), P(),
                   weights(up=(M, F), down=(F, M), x=(12, M), y=(12, M)),
                   lambda *a: lax.psum(gradient(*a), "data"), lambda *a: lax.pmean(gradient(*a), "data"))


# ---- collectives that nobody asked for, and tensors that are not sharded: of jax.jit ----


def sharded(axes, f, specs, arguments):
    return programs.programs.annotated(specs, axes, f, arguments)


@program
def report_shuffle():
    """Rows of a sharded batch, each in an order of its own: no rank needs what another one has."""
    def shuffle(x, order):
        return jnp.take_along_axis(x, order[..., None], axis=1)

    order = jnp.argsort(weights(1, x=(8, 6))["x"], axis=1).astype(jnp.int32)
    return sharded(mesh(data=4), shuffle, (P("data"), P()), (weights(x=(8, 6, 4))["x"], order))


@program
def report_remat():
    """FSDP with remat: weights are gathered for the forward pass and again for the backward pass."""
    def loss(p, x):
        layer = lambda x, p: jnp.tanh(x @ p["up"]) @ p["down"]
        return (jax.checkpoint(layer)(x, p) ** 2).sum()

    return sharded(mesh(data=4), jax.value_and_grad(loss), ({"up": P("data"), "down": P("data")}, P("data")),
                   (weights(up=(M, F), down=(F, M)), weights(1, x=(8, M))["x"]))


@program
def report_uneven():
    """17 rows over 4 ranks, which do not divide them."""
    axes = mesh(data=4)

    def rows(table, scale):
        return jax.lax.with_sharding_constraint(table * scale, jax.sharding.NamedSharding(axes, P("data"))).sum(1)

    return rows, (weights(x=(17, M))["x"], jnp.float32(2))


if __name__ == "__main__":
    programs.programs.main()
