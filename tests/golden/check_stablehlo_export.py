#!/usr/bin/env python3
"""Runs what `cleave export --stablehlo` writes in JAX, on virtual CPU devices, and compares every result with cleave's.

  tests/golden/check_stablehlo_export.py [build/cleave]     needs jax 0.10 and safetensors; skips without jax

One line a case: the largest difference, relative to the largest element of a tensor, and the collectives of XLA's
program beside cleave's. Exit 1 if a difference is above 1e-5.
"""
import collections, json, os, re, subprocess, sys, tempfile

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
try:
    import jax
except ImportError:
    sys.exit(print("skipped: jax is not installed"))
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
from jax._src.sharding_impls import GSPMDSharding
from safetensors.numpy import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
CLEAVE = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../../build/cleave"))
DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "i1": np.bool_, "ui8": np.uint8}
COLLECTIVES = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
MODEL = lambda name: ["-m", os.path.join(HERE, name), "--batch", "4", "--seq", "8"]
CASES = {
    "block gpt, gradients": (["--block", "gpt", "--hidden", "64", "--seq", "16", "--grad"], "data=2,model=4", []),
    "block gpt, megatron-sp": (["--block", "gpt", "--hidden", "64", "--seq", "16", "--grad"], "data=2,model=4",
                               ["--rules", "megatron-sp"]),
    "block llama, gspmd-2d": (["--block", "llama", "--hidden", "64", "--seq", "16", "--grad"], "X=2,Y=4",
                              ["--rules", "gspmd-2d"]),
    "llama, training step": (MODEL("llama"), "data=2,model=2", []),
    "llama, fsdp": (MODEL("llama"), "data=4", ["--rules", "fsdp"]),
    "llama, zero1+megatron-sp": (MODEL("llama"), "data=2,model=2", ["--rules", "zero1+megatron-sp"]),
    "qwen2, training step": (MODEL("qwen2"), "data=2,model=2", []),
    "gpt2, training step": (MODEL("gpt2"), "data=2,model=2", []),
    "bert, training step": (MODEL("bert"), "data=2,model=2", []),
    "esm, training step": (MODEL("esm"), "data=2,model=2", []),
    "llama, decoding": (MODEL("llama") + ["--decode"], "model=2", []),
    "program gpt2": (["-m", os.path.join(HERE, "stablehlo/gpt2.mlir")], "data=2,model=2", []),
    "program sampling": (["-m", os.path.join(HERE, "stablehlo/sampling.mlir")], "data=2,model=2", []),
    "program fsdp": (["-m", os.path.join(HERE, "stablehlo/fsdp.mlir")], "data=2,model=2", []),
}


def cleave(*args):
    done = subprocess.run([CLEAVE, *args], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"cleave {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def ports(text):
    """Arguments as (name, shape, dtype, sharding), and names of results."""
    head = text[text.index("@main("):].split("\n", 1)[0]
    kind = lambda t: (tuple(int(n) for n in t.split("x")[:-1]), DTYPES[t.split("x")[-1]])
    arguments = [(name, *kind(t), sharding) for t, sharding, name in
                 re.findall(r'%\d+: tensor<([^>]*)>(?: \{sdy.sharding = #sdy.sharding<@\w+, \[(.*?)\]>\})? loc\("(.*?)"\)', head)]
    return arguments, re.findall(r'jax.result_info = "(.*?)"', head)


def made_up(name, shape, dtype, random):
    if dtype in (np.float32, np.float64):
        positive = name.endswith((".v", "norm.weight"))
        return np.asarray(np.abs(random.standard_normal(shape)) if positive else 0.1 * random.standard_normal(shape), dtype)
    return np.full(shape, 3, dtype) if shape == () else random.integers(0, 8, shape).astype(dtype)


def run_in_jax(text, arguments, values, devices):
    axes = re.search(r"sdy.mesh @\w+ = <\[(.*?)\]>", text)
    axes = [(a, int(n)) for a, n in re.findall(r'"(\w+)"=(\d+)', axes.group(1))] if axes else [("one", 1)]
    mesh = Mesh(np.array(devices).reshape([n for _, n in axes]), [a for a, _ in axes])
    def place(value, sharding):
        dims = re.findall(r"\{(.*?)\}", sharding)
        spec = PartitionSpec(*[tuple(re.findall(r'"(\w+)"', d)) or None for d in dims])
        return jax.device_put(value, NamedSharding(mesh, spec))
    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        options = compiler.get_compile_options(1, len(devices), np.arange(len(devices)).reshape(1, -1))
        program = jax.devices()[0].client.compile_and_load(module, xla_client.DeviceList(tuple(devices)), options)
    out = program.execute_sharded([place(values[a[0]], a[3]) for a in arguments])
    results = [(GSPMDSharding(tuple(devices), sharding), {s.devices().pop(): np.asarray(s) for s in shards})
               for shards, sharding in zip(out.disassemble_into_single_device_arrays(), program.get_output_shardings())]
    hlo = program.hlo_modules()[0].to_string()
    count = collections.Counter()
    for shape, op in re.findall(rf"= (\([^()]*\)|\S+) ({COLLECTIVES})(?:-start)?\(", hlo):
        count[op] += shape.count("[")  # XLA combines several into one
    return results, count


def assemble(result, shape):
    sharding, parts = result
    whole = np.zeros(shape, next(iter(parts.values())).dtype)
    for device, index in sharding.devices_indices_map(shape).items():
        whole[index] = parts[device]
    return whole


def case(name, target, mesh, rules, folder):
    path, inputs, ours = (os.path.join(folder, f) for f in ("step.mlir", "values.safetensors", "ours.safetensors"))
    cleave("export", "--stablehlo", *target, "--mesh", mesh, *rules, "--out", path)
    text = open(path).read()
    arguments, results = ports(text)
    random = np.random.default_rng(0)
    values = {a[0]: made_up(*a[:3], random) for a in arguments}
    save_file(values, inputs)
    cleave("forward", "-m", path, "--inputs", inputs, "--out", ours, "--mesh", mesh)
    want = load_file(ours)
    ranks = int(np.prod([int(a.split("=")[1]) for a in mesh.split(",")]))
    got, theirs = run_in_jax(text, arguments, values, jax.devices()[:ranks])
    worst = 0.0
    for result, value in zip(results, got):
        mine = want[result].astype(np.float64)
        difference = np.abs(assemble(value, mine.shape).astype(np.float64) - mine).max(initial=0)
        worst = max(worst, difference / max(np.abs(mine).max(initial=0), 1e-2))
    plan = json.loads(cleave("plan", *target, "--mesh", mesh, *rules, "--json"))
    own = collections.Counter(c["kind"].replace("_", "-") for c in plan["collectives"])
    say = lambda count: ", ".join(f"{n} {op}" for op, n in sorted(count.items())) or "none"
    print(f"{name:26} {mesh:15} {len(results):3} results, {worst:.1e}; JAX: {say(theirs)}; cleave: {say(own)}", flush=True)
    return worst <= 1e-5


def main():
    ok = True
    with tempfile.TemporaryDirectory() as folder:
        for name, (target, mesh, rules) in CASES.items():
            ok = case(name, target, mesh, rules, folder) and ok
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
