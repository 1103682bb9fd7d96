#!/usr/bin/env python3
"""Collectives of a StableHLO program: cleave's, and those that XLA's partitioner (Shardy) makes of the same text.

    pip install -r bench/requirements.txt
    python bench/xla_program.py step.mlir --mesh data=2,model=2 --layout "p['up']=_,model" --layout x=data,_
    python bench/xla_program.py --goldens          # the table of docs/programs.md
    python bench/xla_program.py --scan 16,48,96    # how long scans of so many layers take

Arguments have the layouts of the text, and those of --layout (NAME=LAYOUT). XLA compiles for virtual CPU devices; the
bytes are those that a rank receives, by the formulas of xla_bytes.py; a loop's collectives count once a turn.
"""
import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import xla_bytes  # sets up eight virtual devices

import jax
import numpy as np
from jax._src.lib import _jax, xla_client

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")

# ---- the text with layouts ----


def sdy(layout):
    dims = ("" if d.strip() == "_" else d.strip() for d in layout.split(","))
    return "[" + ", ".join("{" + ", ".join(f'"{a}"' for a in d.split("+") if a) + "}" for d in dims) + "]"


def names_of(text):
    """Arguments of @main in order: their text, and their name by its location."""
    main = text[text.index("@main(") :]
    line = main[: main.index("\n")]
    located = dict(re.findall(r'^(#loc\d*) = loc\("(.*?)"\)$', text, re.M))
    found = re.findall(r"(%arg\d+: tensor<[^>]*>)( \{.*?\})? loc\((\"[^\"]*\"|#loc\d*)\)", line)
    return line, [(at, has, where.strip('"') if where[0] == '"' else located[where]) for at, has, where in found]


def annotate(text, mesh, layouts):
    """The text on this mesh; layouts: by name of an argument, as "data,_"."""
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh)
    ranks = int(np.prod([size for _, size in mesh]))
    text = re.sub(r"mhlo.num_partitions = \d+", f"mhlo.num_partitions = {ranks}", text)
    line, arguments = names_of(text)
    new = line
    for at, has, name in arguments:
        if name in layouts and not has:
            new = new.replace(at + " loc", f"{at} {{sdy.sharding = #sdy.sharding<@mesh, {sdy(layouts[name])}>}} loc", 1)
    text = text.replace(line, new)
    if "sdy.mesh @mesh" in text:
        return re.sub(r"sdy.mesh @mesh = <\[.*?\]>", f"sdy.mesh @mesh = <[{axes}]>", text)
    return re.sub(r"(module @.*\{\n)", rf"\1  sdy.mesh @mesh = <[{axes}]>\n", text, count=1)


# ---- XLA's ----


def compile_hlo(text, ranks):
    options = xla_client.CompileOptions()
    options.num_partitions = ranks
    build = options.executable_build_options
    build.num_partitions, build.use_spmd_partitioning, build.use_shardy_partitioner = ranks, True, True
    build.allow_spmd_sharding_propagation_to_output = [True]
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(ranks).reshape(1, ranks))
    devices = tuple(jax.devices()[:ranks])
    program = devices[0].client.compile_and_load(text, _jax.DeviceList(devices), options)
    return program.hlo_modules()[0].to_string()


def xla_collectives(hlo):
    """Count and bytes, with what is called, and a loop's as often as it turns."""
    bodies, entry, name = {}, None, None
    for line in hlo.splitlines():
        begins = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if begins:
            name = begins[2]
            bodies[name] = []
            entry = name if begins[1] else entry
        elif name:
            bodies[name].append(line)

    def total(of):
        count = size = 0
        for line in bodies.get(of, []):
            match = xla_bytes.LINE.search(line)
            n = xla_bytes.group_size(match["rest"]) if match else 1
            if n > 1:
                count += 1
                size += xla_bytes.received(match["kind"], xla_bytes.bytes_of(match["type"]), n)
            turns = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            if re.search(r"\bwhile\(", line) and not turns:
                raise SystemExit("a loop of an unknown number of turns: " + line)
            for called in re.findall(r"(?:body|to_apply|calls)=%?([\w.\-]+)", line):
                if match is None:
                    inner = total(called)
                    count += inner[0] * int(turns[1] if turns else 1)
                    size += inner[1] * int(turns[1] if turns else 1)
        return count, size

    return total(entry)


# ---- ours ----


def our_collectives(cleave, text, mesh, extra):
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(text)
        file.flush()
        command = [cleave, "plan", "-m", file.name, "--mesh", mesh, "--json", *extra]
        run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    plan = json.loads(run.stdout)
    return len(plan["collectives"]), plan["bytes"]


def compare(path, mesh_text, layouts, options):
    text = open(path).read()
    mesh = [(a.split("=")[0], int(a.split("=")[1])) for a in mesh_text.split(",")]
    text = annotate(text, mesh, layouts)
    count, size = our_collectives(options.cleave, text, mesh_text, options.option)
    xla_count, xla_size = xla_collectives(compile_hlo(text, int(np.prod([n for _, n in mesh]))))
    print(f"| {os.path.basename(path)[:-5]} | {mesh_text} | {count} | {size:,.0f} | {xla_count} | {xla_size:,.0f} |",
          flush=True)


# ---- the programs of the tests: Megatron's layouts ----

MEGATRON = [
    (r"^(x|y|ids|mask)$", ["data", "data,_"]),
    (r"(embed|wte|embedding)'\]$", [None, "model,_"]),
    (r"'(out|o|down)'\](\['kernel'\])?$", [None, "model,_", "model,_,_", "_,model,_"]),
    (r"'(qkv|q|k|v|up|gate|head|query|key|value|w)'\](\['kernel'\])?$", [None, "_,model", "_,_,model"]),
    (r"^w$", [None, None, "_,_,model"]),
    (r"'up'\]\['bias'\]$|p\['bias'\]$|'bqkv'\]$", ["model"]),
]
SPECIAL = {
    "moe": {"p['up']": "model,_,_", "p['down']": "model,_,_", "x": "data,_"},
    "nnx_layers": {f"p['attention']['{n}']['kernel']": "_,model,_" for n in ("query", "key", "value")}
    | {f"p['attention']['{n}']['bias']": "model,_" for n in ("query", "key", "value")}
    | {"p['attention']['out']['kernel']": "model,_,_"},
    "llama": {"p['layers']['o']": "_,model,_", "p['layers']['down']": "_,model,_"},
    "llama_forward": {"p['layers']['o']": "_,model,_", "p['layers']['down']": "_,model,_"},
}


def megatron(path):
    program = os.path.basename(path)[:-5]
    _, arguments = names_of(open(path).read())
    layouts = {}
    for at, _, name in arguments:
        rank = at.count("x")  # of tensor<2x3xf32>
        rank -= at.split("tensor<")[0].count("x")
        for pattern, by_rank in MEGATRON:
            if re.search(pattern, name) and 0 < rank <= len(by_rank) and by_rank[rank - 1]:
                layouts[name] = by_rank[rank - 1]
                break
    return layouts | SPECIAL.get(program, {})


PROGRAMS = ("mlp_forward mlp llama_forward gpt2 llama esm scan_remat nnx_layers adamw fsdp moe tensor_parallel").split()
MANUAL = {"shard_map_collectives": "data=2,model=2", "shard_map_block": "data=2,model=2", "shard_map_ring": "model=4",
          "shard_map_attention": "model=4", "shard_map_vocabulary": "model=4", "shard_map_patterns": "data=2,model=2"}


def scan(cleave, layers):
    """Seconds to read and plan the Llama step of the tests with so many layers in a lax.scan."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
    import make_stablehlo as golden

    step, (_, ids) = golden.PROGRAMS["llama"]()
    text = jax.jit(step).lower(golden.llama_weights(layers), ids).as_text(debug_info=True)
    with tempfile.TemporaryDirectory() as folder:
        path, stated = os.path.join(folder, "llama.mlir"), os.path.join(folder, "layouts.json")
        open(path, "w").write(text)
        layouts = megatron(path)  # of "llama"
        json.dump({"mesh": "data=2,model=2", "layouts": layouts}, open(stated, "w"))
        seconds = []
        for command in (["import", path], ["plan", "-m", path], ["explain", "-m", path]):
            begin = time.perf_counter()
            run = subprocess.run([cleave, *command, "--layouts", stated], capture_output=True, text=True, check=True)
            seconds.append(time.perf_counter() - begin)
            ops = re.search(r"^instructions +(\d+)", run.stdout, re.M)
            n = ops[1] if ops else n
    row = [layers, n, *(f"{s:.2f}" for s in seconds), len(run.stdout.splitlines())]
    print("| " + " | ".join(map(str, row)) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", help="StableHLO text")
    parser.add_argument("--mesh", default="data=2,model=2")
    parser.add_argument("--layout", action="append", default=[], metavar="NAME=LAYOUT")
    parser.add_argument("--scan", metavar="N,...", help="seconds of import, plan and explain of scans of N layers")
    parser.add_argument("--goldens", action="store_true", help="the programs of tests/golden/stablehlo")
    parser.add_argument("--cleave", default=os.path.join(ROOT, "build", "cleave"))
    parser.add_argument("--option", action="append", default=[], help="of cleave plan: --option=--no-patterns")
    options = parser.parse_args()
    if options.scan:
        print("| layers | instructions | import s | plan s | explain s | its lines |\n|---|---|---|---|---|---|")
        for layers in options.scan.split(","):
            scan(options.cleave, int(layers))
        return
    print("| program | mesh | cleave: collectives | bytes | XLA: collectives | bytes |\n|---|---|---|---|---|---|")
    if options.goldens:
        for name in [*PROGRAMS, *MANUAL]:
            path = os.path.join(ROOT, "tests", "golden", "stablehlo", name + ".mlir")
            stated = name in ("fsdp", "tensor_parallel") or name in MANUAL
            mesh = MANUAL.get(name, "data=4" if name == "fsdp" else "data=2,model=2")
            compare(path, mesh, {} if stated else megatron(path), options)
        return
    if not options.program:
        parser.error("a program, or --goldens")
    compare(options.program, options.mesh, dict(a.rsplit("=", 1) for a in options.layout), options)


if __name__ == "__main__":
    main()
