#!/usr/bin/env python3
"""Bytes that XLA's partitioner moves for the blocks that `cleave plan --block` prices.

Each case is compiled by jax.jit for 8 virtual CPU devices with the layouts a careful user would state (no shard_map);
the collectives are read off the optimised HLO. Bytes are those that a rank receives (ring formulas):
all-gather (n-1) x its local input, reduce-scatter (n-1) x its output, all-reduce 2 (n-1)/n x its input, all-to-all
(n-1)/n x its input, collective-permute its input; n is the size of a replica group.

    pip install -r bench/requirements.txt
    python bench/xla_bytes.py --json bench/xla_bytes.json
"""
import argparse
import json
import os
import re

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

B, S, M, H, HEADS, D = 8, 128, 256, 1024, 8, 32

# ---- what is compared ----


class Layouts:
    """Names of dimensions to mesh axes: GSPMD's "2D finalized", or Megatron's with or without sequence parallelism."""

    def __init__(self, kind):
        self.kind = kind
        two = kind == "2d"
        self.x, self.y = ("X", "Y") if two else (None, "model")
        self.act = P(self.x, "model" if kind == "megatron-sp" else None, self.y if two else None)
        self.w_in, self.w_out = P(self.x, self.y), P(self.y, self.x)
        self.qkv, self.o = P(self.x, self.y, None), P(self.y, None, self.x)
        self.gain = P(self.y) if two else P(None)
        self.hidden = P(self.x, None, self.y)
        self.heads = P(self.x, None, self.y, None)
        self.inside = P(self.x, None, None)


def shapes(block, at):
    """Parameters: shape and layout."""
    ffn = {"w_in": ((M, H), at.w_in), "w_out": ((H, M), at.w_out)}
    attention = {name: ((M, HEADS, D), at.qkv) for name in "qkv"} | {"o": ((HEADS, D, M), at.o)}
    norms = {"g1": ((M,), at.gain), "g2": ((M,), at.gain)}
    return {"ffn": ffn, "attention": attention, "gpt": ffn | attention | norms}[block]


def build(block, at, mesh, how):
    """The block as a function of its parameters and x. how: "ends" states weights, inputs and outputs alone,
    "stream" also the residual stream, "inside" also what is between the products of a layer, "inputs" also what
    enters them."""

    def stated(value, spec):
        if how == "ends":
            return value
        return jax.lax.with_sharding_constraint(value, NamedSharding(mesh, spec))

    def inside(value, spec):
        return value if how in ("ends", "stream") else stated(value, spec)

    def entered(value):
        return stated(value, at.inside) if how == "inputs" else value

    def ffn(p, x):
        h = inside(jnp.einsum("bsm,mh->bsh", entered(x), p["w_in"]), at.hidden)
        h = jax.nn.gelu(h, approximate=False)
        return stated(jnp.einsum("bsh,hm->bsm", h, p["w_out"]), at.act)

    def attention(p, x):
        x = entered(x)
        q, k, v = (inside(jnp.einsum("bsm,mhd->bshd", x, p[n]), at.heads) for n in "qkv")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(D)
        scores = jnp.where(jnp.tril(jnp.ones((S, S), bool)), scores, -1e30)
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
        return stated(jnp.einsum("bqhd,hdm->bqm", inside(y, at.heads), p["o"]), at.act)

    def norm(x, gain):
        mean = jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
        return stated((x - mean) * jax.lax.rsqrt(variance + 1e-5) * gain, at.act)

    def gpt(p, x):
        x = stated(x + attention(p, norm(x, p["g1"])), at.act)
        return stated(x + ffn(p, norm(x, p["g2"])), at.act)

    return {"ffn": ffn, "attention": attention, "gpt": gpt}[block]


def compile_case(block, at, mesh, grad, how, remat):
    parameters = shapes(block, at)
    act = NamedSharding(mesh, at.act)
    placed = {n: NamedSharding(mesh, spec) for n, (_, spec) in parameters.items()}
    args = {n: jax.ShapeDtypeStruct(shape, jnp.float32) for n, (shape, _) in parameters.items()}
    x = jax.ShapeDtypeStruct((B, S, M), jnp.float32)
    forward = build(block, at, mesh, how)
    if not grad:
        return jax.jit(forward, in_shardings=(placed, act), out_shardings=act).lower(args, x).compile()
    inner = jax.checkpoint(forward) if remat else forward

    def both(p, x, dy):
        y, back = jax.vjp(inner, p, x)
        return y, back(dy)

    step = jax.jit(both, in_shardings=(placed, act, act), out_shardings=(act, (placed, act)))
    return step.lower(args, x, x).compile()


# ---- collectives of the optimised HLO ----

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
SIZES = {"f32": 4, "f64": 8, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "pred": 1, "s8": 1, "u8": 1, "s64": 8}
LINE = re.compile(r"= (?P<type>.*?) (?P<kind>" + "|".join(KINDS) + r")(?:-start)?\((?P<rest>.*)$")


def bytes_of(text):
    total = 0
    for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", text):
        if dtype in SIZES:
            total += SIZES[dtype] * int(np.prod([int(d) for d in dims.split(",") if d] or [1]))
    return total


def group_size(rest):
    """Ranks of a group, from any of the three forms that XLA prints."""
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", rest)
    if listed:
        return len(listed.group(1).split(","))
    iota = re.search(r"replica_groups=\[(\d+),(\d+)\]", rest)
    if iota:
        return int(iota.group(2))
    if "source_target_pairs" in rest:
        return 2
    meshed = re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", rest)
    if not meshed:
        raise SystemExit("unknown replica groups: " + rest)
    sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", meshed.group(1))}
    n = 1
    for name, part in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", meshed.group(2)):
        n *= int(part) if part else sizes[name]
    return n


def received(kind, result, n):
    """Bytes that a rank receives, from the bytes of the result."""
    if kind == "all-gather":
        return result * (n - 1) / n
    if kind == "reduce-scatter":
        return result * (n - 1)
    if kind == "all-reduce":
        return 2 * result * (n - 1) / n
    return result * (n - 1) / n if kind == "all-to-all" else result


def collectives(hlo):
    found = []
    for line in hlo.splitlines():
        match = LINE.search(line)
        if not match:
            continue
        kind, n = match["kind"], group_size(match["rest"])
        result = bytes_of(match["type"])
        if n > 1:
            found.append({"kind": kind, "ranks": n, "bytes": received(kind, result, n)})
    if re.search(r"\bwhile\(", hlo):
        raise SystemExit("the program has a loop: its collectives would be counted once")
    return found


# ---- the cases ----


def cases():
    for x, y in ((2, 4), (4, 2), (1, 8), (8, 1)):
        for block in ("ffn", "attention", "gpt"):
            yield block, "2d", (("X", x), ("Y", y))
    for ranks in (4, 8):
        for kind in ("megatron", "megatron-sp"):
            yield "gpt", kind, (("model", ranks),)


def measure(block, kind, axes, step):
    sizes = [n for _, n in axes]
    devices = np.array(jax.devices()[: int(np.prod(sizes))]).reshape(sizes)
    mesh = Mesh(devices, [name for name, _ in axes])
    mesh_text = ",".join(f"{name}={n}" for name, n in axes)
    remat = step == "reshard_after_forward"
    for how in ("ends", "stream", "inside", "inputs"):
        hlo = compile_case(block, Layouts(kind), mesh, step != "forward", how, remat).as_text()
        found = collectives(hlo)
        total = sum(c["bytes"] for c in found)
        counts = {}
        for c in found:
            counts[c["kind"]] = counts.get(c["kind"], 0) + 1
        yield {"block": block, "layouts": kind, "mesh": mesh_text, "pass": step, "stated": how, "bytes": total,
               "collectives": counts}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write all cases to this file")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    results = []
    for block, kind, axes in cases():
        for step in ("forward", "grad", "reshard_after_forward"):
            name = f"{block} {kind} {axes} {step}"
            if options.only not in name:
                continue
            for result in measure(block, kind, axes, step):
                results.append(result)
                counts = " ".join(f"{n} {k}" for k, n in sorted(result["collectives"].items()))
                print(f"{block:9} {kind:11} {result['mesh']:8} {step:8} {result['stated']:7}"
                      f"{result['bytes'] / 1e6:8.3f} MB  {counts}", flush=True)
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"jax": jax.__version__, "cases": results}, out, indent=1)
            out.write("\n")


if __name__ == "__main__":
    main()
