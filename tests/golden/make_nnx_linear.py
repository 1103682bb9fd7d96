"""Writes nnx_linear.json: flax nnx.Linear on small inputs, for tests/test_rng.c and the tensor-parallel linear layer.

    pip install -r requirements.txt && python make_nnx_linear.py > nnx_linear.json

Each case: seed, features, x [rows][in], kernel [in][features], output [rows][features]; floats with 9 digits, so that
reading them as float gives back the very value.
"""
import json

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


def floats(array):
    return [[float(f"{v:.9g}") for v in row] for row in np.asarray(array)]


def case(seed, inputs, features):
    x = np.random.default_rng(seed % 1000).standard_normal((3, inputs)).astype(np.float32)
    linear = nnx.Linear(inputs, features, rngs=nnx.Rngs(seed))
    with jax.default_matmul_precision("highest"):
        output = linear(jnp.asarray(x))
    return {"seed": seed, "features": features, "x": floats(x), "kernel": floats(linear.kernel[...]),
            "output": floats(output)}


def main():
    cases = [case(s, i, f) for s in (0, 1, 42, 2**32 + 5) for i, f in ((4, 6), (16, 10), (7, 3))]
    lines = ",\n".join(json.dumps(c) for c in cases)
    print("[\n" + lines + "\n]")


main()
