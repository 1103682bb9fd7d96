#!/usr/bin/env python3
"""Layouts that AutoParallel (meta-pytorch/autoparallel) chooses for a GPT-2 and a Llama block, beside the best preset
of this library, both priced by `cleave plan`.
usage: bench/compare_autoparallel.py [--cleave build/cleave] [--hardware h100-nvlink-ib] [--json]

AutoParallel solves a linear programme over DTensor placements of every op, forward and backward. It needs torch 2.10
or newer, pulp, and its checkout (git clone https://github.com/meta-pytorch/autoparallel, on PYTHONPATH), but no GPU:
the process group is a fake one, the mesh one of CPUs, and its cost model is told that devices are H100s. Where it is
not installed, the script says so and ends with 77; with 1 where a choice of AutoParallel is better than ours.

What it chose is read from the product of each weight: over a mesh axis, the batch is split, or the weight's outputs
(heads, mlp), or the weight is stored in parts and gathered (embed_kernel): rules, as docs/rules.md has them. Other
choices are named and not priced.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIPPED = 77
LIMIT_S = 240  # for an answer of AutoParallel
BLOCKS = {
    "gpt": {"hidden": 768, "heads": 12, "kv_heads": 12, "ffn": 3072, "batch": 16, "seq": 1024},
    "llama": {"hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "batch": 16, "seq": 2048},
}
MESHES = ({"data": 8}, {"data": 2, "model": 4})
# Weights whose outputs are split by heads or by mlp; the others contract them.
OUTPUTS = {"q": "heads", "k": "heads", "v": "heads", "up": "mlp", "gate": "mlp"}


# ---- AutoParallel ----


def torch_block(kind: str, size: dict):
    import torch
    from torch import nn

    width, heads, kv_heads = size["hidden"], size["heads"], size["kv_heads"]
    head = width // heads

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            norm = nn.RMSNorm if kind == "llama" else lambda n: nn.LayerNorm(n, bias=False)
            self.norm1, self.norm2 = norm(width), norm(width)
            sizes = {"q": (width, heads * head), "k": (width, kv_heads * head), "v": (width, kv_heads * head),
                     "o": (heads * head, width), "up": (width, size["ffn"]), "down": (size["ffn"], width)}  # fmt: skip
            if kind == "llama":
                sizes["gate"] = sizes["up"]
            for name, (m, n) in sizes.items():
                setattr(self, name, nn.Linear(m, n, bias=False))

        def attention(self, x):
            b, s, _ = x.shape
            q, k, v = (w(x).view(b, s, -1, head).transpose(1, 2) for w in (self.q, self.k, self.v))
            if kv_heads < heads:
                k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
            scores = torch.softmax(q @ k.transpose(-1, -2) * head**-0.5, -1)
            return self.o((scores @ v).transpose(1, 2).reshape(b, s, heads * head))

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            h = self.norm2(x)
            up = nn.functional.silu(self.gate(h)) * self.up(h) if kind == "llama" else nn.functional.gelu(self.up(h))
            return x + self.down(up)

    with torch.device("meta"):
        return Block()


def source_of(node):
    """The placeholder that a node is a view, a transpose or a copy of; None: of none."""
    while node.op != "placeholder":
        if len(node.all_input_nodes) != 1:
            return None
        node = node.all_input_nodes[0]
    return node


def products(solution, names: list[str]) -> dict:
    """Of each weight: placements as stored, and of the operands of its forward product, the first that reads it."""
    stored, found = {}, {}
    for node, spec in solution.items():
        if node.op == "placeholder" and node.name.startswith("primals_"):
            stored[node] = spec.output_specs.placements
    weights = dict(zip(stored, names))
    for node, spec in solution.items():
        operands = node.all_input_nodes
        if "einsum" not in node.name or len(operands) != 2:
            continue
        name = weights.get(source_of(operands[1]))
        if name and name not in found:
            x, w = (s.placements for s in spec.input_specs)
            found[name] = {"stored": stored[source_of(operands[1])], "x": x, "w": w}
    return found


def ask(kind: str, size: dict, mesh: dict, store_parts: bool) -> dict:
    """Placements that AutoParallel chooses, by weight."""
    import torch
    from autoparallel.api import AutoParallel
    from torch.distributed.tensor.placement_types import Replicate, Shard

    devices = torch.distributed.device_mesh.init_device_mesh("cpu", tuple(mesh.values()), mesh_dim_names=tuple(mesh))
    x = (Shard(0),) + (Replicate(),) * (len(mesh) - 1)
    module = torch_block(kind, size)
    names = [name.removesuffix(".weight") for name, _ in module.named_parameters()]

    def sample():
        return torch.rand(size["batch"], size["seq"], size["hidden"], dtype=torch.bfloat16, requires_grad=True)

    module = module.to(torch.bfloat16)
    with AutoParallel(module, sample, devices) as solver:
        if store_parts:
            solver.add_parameter_memory_constraint(low=None, high=None)
        solver.add_input_constraints([x])
        solver.add_output_constraints([x])
        return products(solver.optimize_placement(), names)


# ---- as rules ----


class NotRules(Exception):
    """A choice that rules do not express, or none."""


def give_up(*_) -> None:
    raise NotRules(f"no answer in {LIMIT_S} s")


def rules_of(found: dict, mesh: dict) -> list:
    """Which names each mesh axis splits, from the placements of the products."""
    names: dict[str, list[str]] = {name: [] for name in ("batch", "heads", "kv_heads", "mlp", "embed_kernel")}
    for at, axis in enumerate(mesh):
        kinds = {}
        for weight, of in found.items():
            x, w, stored = (str(of[part][at]) for part in ("x", "w", "stored"))
            is_output = weight in OUTPUTS
            kinds[weight] = (
                "batch" if x == "S(0)" and w == "R" else
                OUTPUTS[weight] if is_output and x == "R" and w == "S(1)" else
                "split" if not is_output and x == "S(2)" and w == "S(0)" else
                "none" if x == "R" and w == "R" else f"{x} @ {w}")  # fmt: skip
            if w == "R" and stored != "R" and axis not in names["embed_kernel"]:
                names["embed_kernel"].append(axis)
        if set(kinds.values()) == {"batch"}:
            names["batch"].append(axis)
            continue
        for group, inner, outer in (("heads", "qkv", "o"), ("mlp", ("up", "gate"), "down")):
            now = {kinds[w] for w in inner if w in kinds}
            if now == {group} and kinds[outer] == "split":
                names[group].append(axis)
            elif now | {kinds[outer]} != {"none"}:
                raise NotRules(f"over {axis}: {', '.join(f'{w} {k}' for w, k in kinds.items())}")
    names["kv_heads"] = names["heads"]
    return [[name, axes] for name, axes in names.items() if axes]


# ---- prices ----


def price(cleave: pathlib.Path, kind: str, size: dict, mesh: dict, rules, hardware: str) -> dict | None:
    """seconds, bytes of collectives, and bytes of the weights that a rank holds; None for rules that do not apply."""
    with tempfile.TemporaryDirectory() as folder:
        if not isinstance(rules, str):
            path = pathlib.Path(folder) / "rules.json"
            path.write_text(json.dumps({"rules": rules}))
            rules = str(path)
        command = [str(cleave), "plan", "--block", kind, "--grad", "--json", "--dtype", "bf16", "--rules", rules,
                   "--mesh", ",".join(f"{axis}={n}" for axis, n in mesh.items()), "--hardware", hardware]  # fmt: skip
        for name, value in size.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None
    document = json.loads(done.stdout)
    return {"seconds": document["predicted"]["seconds"], "bytes": document["bytes"],
            "weights": document["memory"]["parameters"]}  # fmt: skip


def ours(cleave: pathlib.Path, kind: str, size: dict, ranks: int, hardware: str, most: float) -> tuple[str, dict]:
    """The fastest preset on any mesh of as many ranks, of those whose weights need no more than `most` bytes."""
    one, two = [{"data": ranks}, {"model": ranks}], [{"data": d, "model": ranks // d} for d in (2, 4) if d < ranks]
    squares = [{"X": axes["data"], "Y": axes["model"]} for axes in two]
    tried = [(name, mesh) for name in ("dp", "fsdp", "megatron", "megatron-sp") for mesh in one + two]
    tried += [("fsdp+megatron-sp", mesh) for mesh in two] + [("gspmd-2d", mesh) for mesh in squares]
    priced = [(f"{name} {','.join(f'{a}={n}' for a, n in mesh.items())}",
               price(cleave, kind, size, mesh, name, hardware)) for name, mesh in tried]  # fmt: skip
    fit = [(name, cost) for name, cost in priced if cost and cost["weights"] <= most]
    return min(fit, key=lambda entry: entry[1]["seconds"])


def compare(cleave: pathlib.Path, hardware: str) -> list[dict]:
    rows = []
    for kind, size in BLOCKS.items():
        whole = price(cleave, kind, size, {"data": 8}, "dp", hardware)["weights"]
        for mesh in MESHES:
            for store_parts in (False, True):
                most = whole / 8 * 1.01 if store_parts else whole
                name, best = ours(cleave, kind, size, 8, hardware, most)
                row = {"block": kind, "mesh": mesh, "weights": "an eighth" if store_parts else "any", "ours": name,
                       "ours_seconds": best["seconds"]}  # fmt: skip
                rows.append(row)
                signal.alarm(LIMIT_S)
                try:
                    rules = rules_of(ask(kind, size, mesh, store_parts), mesh)
                except NotRules as why:
                    row["autoparallel"] = str(why)
                    continue
                finally:
                    signal.alarm(0)
                theirs = price(cleave, kind, size, mesh, rules, hardware)
                row["autoparallel"] = ", ".join(f"{name} {'+'.join(axes)}" for name, axes in rules)
                row["autoparallel_seconds"] = theirs["seconds"] if theirs else None
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cleave", type=pathlib.Path, default=ROOT / "build" / "cleave")
    parser.add_argument("--hardware", default="h100-nvlink-ib")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        import torch
        from autoparallel.cost_models import compute_estimation
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as why:
        print(f"compare_autoparallel: skipped: {why}")
        return SKIPPED
    h100 = next(limit for limit in compute_estimation.DEVICE_LIMITS if limit.name == "H100")
    compute_estimation._get_device_limit = lambda: h100  # it asks the CUDA driver
    signal.signal(signal.SIGALRM, give_up)
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    rows = compare(options.cleave, options.hardware)
    if options.json:
        json.dump(rows, sys.stdout, indent=1)
    else:
        print("| block | mesh | weights a rank | AutoParallel | ms | ours | ms |\n|---|---|---|---|---|---|---|")
    better = 0
    for row in rows:
        theirs, mesh = row.get("autoparallel_seconds"), ",".join(f"{a}={n}" for a, n in row["mesh"].items())
        better += theirs is not None and theirs < 0.999 * row["ours_seconds"]
        if not options.json:
            print(f"| {row['block']} | {mesh} | {row['weights']} | {row['autoparallel']} | "
                  f"{f'{1e3 * theirs:.2f}' if theirs else '-'} | {row['ours']} | {1e3 * row['ours_seconds']:.2f} |")
    return 1 if better else 0


if __name__ == "__main__":
    sys.exit(main())
