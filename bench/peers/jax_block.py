"""JAX on the blocks of `cleave bench block --gated`, split over two host devices by GSPMD. A server of bench/turns.py;
usage: python bench/peers/jax_block.py HIDDEN LAYERS HEADS BATCH SEQ f32|bf16 train|forward [--ranks 2] [--times 3]

The same work as torch_block.py; weights are split as Megatron splits them, activations stay whole.
"""

import os

import torch_block
import turns


def main() -> None:
    a = torch_block.arguments()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={a.ranks}"

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    h, ffn, heads = a.hidden, 4 * a.hidden, a.heads
    dtype = jnp.float32 if a.dtype == "f32" else jnp.bfloat16
    mesh = Mesh(np.array(jax.devices()[: a.ranks]), ("model",))
    columns, rows, whole = (NamedSharding(mesh, spec) for spec in (P(None, "model"), P("model", None), P()))
    shapes = {"q": (h, h), "k": (h, h), "v": (h, h), "out": (h, h), "gate": (h, ffn), "up": (h, ffn), "down": (ffn, h)}
    split = {name: rows if name in ("out", "down") else columns for name in shapes}
    split |= {"before": whole, "between": whole}

    def weights(key):
        keys = jax.random.split(key, len(shapes))
        w = {name: 0.02 * jax.random.normal(k, shape, dtype)
             for k, (name, shape) in zip(keys, shapes.items(), strict=True)}  # fmt: skip
        return w | {"before": jnp.ones(h, dtype), "between": jnp.ones(h, dtype)}

    def norm(x, gain):
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-5)
        return x * scale.astype(dtype) * gain

    def block(w, x):
        y = norm(x, w["before"])
        q, k, v = ((y @ w[name]).reshape(a.batch, a.seq, heads, h // heads) for name in "qkv")
        z = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(a.batch, a.seq, h)
        x = jax.lax.with_sharding_constraint(x + z @ w["out"], whole)
        y = norm(x, w["between"])
        return jax.lax.with_sharding_constraint(x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"], whole)

    def forward(layers, x):
        for w in layers:
            x = block(w, x)
        return x

    def loss(layers, x):
        return jnp.mean(jnp.square(forward(layers, x).astype(jnp.float32)))

    layers = [jax.device_put(weights(key), split) for key in jax.random.split(jax.random.key(0), a.layers)]
    x = jax.device_put(jax.random.normal(jax.random.key(1), (a.batch, a.seq, h), dtype), whole)
    gradients = jax.jit(jax.grad(loss, argnums=(0, 1)), out_shardings=([split] * a.layers, whole))
    work = jax.jit(forward) if a.what == "forward" else gradients

    def step() -> None:
        jax.block_until_ready(work(layers, x))

    step()
    step()
    turns.serve(lambda: {f"JAX, {a.ranks} devices": turns.median_ms(step, a.times)})


if __name__ == "__main__":
    main()
