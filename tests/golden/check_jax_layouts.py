#!/usr/bin/env python3
"""Runs a Llama in JAX on 8 virtual CPU devices, laid out as `cleave export --as jax` says, and compares loss and
gradients with cleave's.

  tests/golden/check_jax_layouts.py [build/cleave]     needs jax 0.10 and safetensors; skips without jax

One line a preset: the largest difference, relative to the largest element of a tensor, and the collectives of the
forward and backward pass: XLA's beside cleave's. Exit 1 if a difference is above 1e-5.
"""
import collections, json, os, re, runpy, subprocess, sys, tempfile

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
try:
    import jax
except ImportError:
    sys.exit(print("skipped: jax is not installed"))
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
CLEAVE = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../../build/cleave"))
COLLECTIVES = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
B, S, M, H, F, V, L = 8, 16, 64, 8, 128, 96, 2
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": M, "num_hidden_layers": L,
          "num_attention_heads": H, "num_key_value_heads": 4, "intermediate_size": F, "vocab_size": V,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
          "tie_word_embeddings": False, "torch_dtype": "float32"}
CASES = [("dp", "data=8"), ("fsdp", "data=8"), ("megatron", "data=2,model=4"), ("megatron-sp", "data=2,model=4"),
         ("fsdp+megatron-sp", "data=2,model=4"), ("zero1+megatron-sp", "data=2,model=4"), ("gspmd-2d", "X=2,Y=4")]


def cleave(*args):
    done = subprocess.run([CLEAVE, *args], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"cleave {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def make_model(folder):
    """A folder of the Hub with random weights."""
    random = np.random.default_rng(0)
    draw = lambda *shape: (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
    weights = {"model.embed_tokens.weight": draw(V, M), "lm_head.weight": draw(V, M),
               "model.norm.weight": 1 + draw(M)}
    for i in range(L):
        at, d = f"model.layers.{i}.", M // H
        weights |= {at + "self_attn.q_proj.weight": draw(M, M), at + "self_attn.k_proj.weight": draw(4 * d, M),
                    at + "self_attn.v_proj.weight": draw(4 * d, M), at + "self_attn.o_proj.weight": draw(M, M),
                    at + "mlp.gate_proj.weight": draw(F, M), at + "mlp.up_proj.weight": draw(F, M),
                    at + "mlp.down_proj.weight": draw(M, F), at + "input_layernorm.weight": 1 + draw(M),
                    at + "post_attention_layernorm.weight": 1 + draw(M)}
    save_file(weights, os.path.join(folder, "model.safetensors"))
    json.dump(CONFIG, open(os.path.join(folder, "config.json"), "w"))
    return weights


def norm(x, gain):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * gain


def rotate(x):
    d = x.shape[-1]
    angle = jnp.arange(S)[:, None] * 10000.0 ** (-jnp.arange(0, d, 2) / d)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    a, b = x[..., : d // 2], x[..., d // 2:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def loss(p, ids, labels, lay):
    """lay(x, name): x in the layout of an activation."""
    x = lay(p["model.embed_tokens.weight"][ids], "residual")
    for i in range(L):
        w = lambda name: p[f"model.layers.{i}.{name}.weight"]
        h = norm(x, w("input_layernorm"))
        q, k, v = (lay((h @ w(f"self_attn.{n}_proj").T).reshape(B, S, -1, M // H), "heads") for n in "qkv")
        k, v = (jnp.repeat(t, H // 4, 2) for t in (rotate(k), v))
        scores = jnp.einsum("bshd,bthd->bhst", rotate(q), k) / np.sqrt(M // H)
        scores = jnp.where(jnp.tril(jnp.ones((S, S), bool)), scores, -jnp.inf)
        mixed = jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores, -1), v).reshape(B, S, M)
        x = lay(x + mixed @ w("self_attn.o_proj").T, "residual")
        h = norm(x, w("post_attention_layernorm"))
        up = lay(jax.nn.silu(h @ w("mlp.gate_proj").T) * (h @ w("mlp.up_proj").T), "mlp")
        x = lay(x + up @ w("mlp.down_proj").T, "residual")
    logits = lay(norm(x, p["model.norm.weight"]) @ p["lm_head.weight"].T, "logits")
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits, -1), labels[..., None], -1)
    return -jnp.mean(chosen[:, :-1])


def case(preset, mesh_text, folder, weights, ids, want):
    layout = folder + ".layout.py"
    cleave("export", "--as", "jax", "-m", folder, "--mesh", mesh_text, "--rules", preset, "--out", layout)
    layout = runpy.run_path(layout)
    mesh = layout["make_mesh"]()
    params = {name: jax.device_put(w, layout["sharding"](mesh, name)) for name, w in weights.items()}
    lay = lambda x, name: jax.lax.with_sharding_constraint(x, layout["sharding"](mesh, name, "activations"))
    place = layout["sharding"](mesh, "ids", "inputs")
    step = jax.jit(jax.value_and_grad(lambda p, i, l: loss(p, i, l, lay)),
                   out_shardings=(None, {name: w.sharding for name, w in params.items()}))
    inputs = jax.device_put(ids, place), jax.device_put(np.roll(ids, -1, 1), place)
    value, grads = step(params, *inputs)
    mean = want["loss"].item()
    worst = abs(float(value) - mean) / mean
    for name, g in grads.items():
        mine = want["grad." + name]
        worst = max(worst, np.abs(np.asarray(g) - mine).max() / np.abs(mine).max())
    theirs = collections.Counter()
    for shape, op in re.findall(rf"= (\([^()]*\)|\S+) ({COLLECTIVES})(?:-start)?\(", step.lower(params, *inputs).compile().as_text()):
        theirs[op] += shape.count("[")  # XLA combines several into one
    plan = json.loads(cleave("plan", "-m", folder, "--mesh", mesh_text, "--rules", preset, "--batch", str(B), "--seq",
                             str(S), "--json"))
    own = collections.Counter(c["kind"].replace("_", "-") for c in plan["collectives"] if c["pass"] != "update")
    say = lambda count: ", ".join(f"{n} {op}" for op, n in sorted(count.items())) or "none"
    print(f"{preset:18} {mesh_text:15} {worst:.1e}; JAX: {say(theirs)}; cleave: {say(own)}", flush=True)
    return worst <= 1e-5


def main():
    with tempfile.TemporaryDirectory() as around:
        folder = os.path.join(around, "model")
        os.mkdir(folder)
        weights = make_model(folder)
        ids = np.random.default_rng(1).integers(0, V, (B, S)).astype(np.int32)
        path, out = os.path.join(around, "ids.safetensors"), os.path.join(around, "ours.safetensors")
        save_file({"ids": ids}, path)
        cleave("forward", "-m", folder, "--ids", path, "--grad", "--out", out)
        want = load_file(out)
        return 0 if all([case(*c, folder, weights, ids, want) for c in CASES]) else 1


if __name__ == "__main__":
    sys.exit(main())
