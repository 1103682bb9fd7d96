#!/usr/bin/env python3
"""The bytes of `cleave plan` beside XLA's (bench/xla_bytes.json), of blocks, and beside Megatron-LM's formulas, of
models: two Markdown tables.

For each case the least that XLA needed over the ways of stating layouts that bench/xla_bytes.py tries. Exits with 1
when cleave moves more in any case (1 % is allowed: moments of norms travel as f64), or, with --docs, when a row is not
in docs/bytes.md, or README.md does not say within what bounds the ratios are.

    python bench/compare_bytes.py [--cleave build/cleave] [--xla bench/xla_bytes.json] [--docs .]
"""
import argparse
import json
import os
import subprocess
import sys

RULES = {"2d": "gspmd-2d", "megatron": "megatron", "megatron-sp": "megatron-sp"}
PASSES = {"forward": ["--forward"], "grad": ["--grad", "--keep-gathered"],
          "reshard_after_forward": ["--grad", "--reshard-after-forward"]}


def ours(cleave, case):
    command = [cleave, "plan", "--block", case["block"], "--hidden", "256", "--batch", "8", "--seq", "128",
               "--mesh", case["mesh"], "--rules", RULES[case["layouts"]], "--json"]
    return json.loads(subprocess.run(command + PASSES[case["pass"]], check=True, capture_output=True).stdout)["bytes"]


def least(cases):
    """One row a case: XLA's best statement of it."""
    best = {}
    for case in cases:
        key = (case["block"], case["layouts"], case["mesh"], case["pass"])
        if key not in best or case["bytes"] < best[key]["bytes"]:
            best[key] = case
    return best.values()


BATCH, SEQ, HIDDEN, LAYERS, MICROBATCHES, CHOSEN, BF16 = 8, 4096, 4096, 32, 8, 2, 2
STREAM = BATCH * SEQ * HIDDEN * BF16  # b s h
MICRO = ["--accumulate", str(MICROBATCHES)]


def rows_of(experts):
    return CHOSEN * STREAM / experts * (experts - 1) / experts


# config, mesh, options, kind; Megatron-LM's number of them in a step, and the bytes of each, by formula
MEGATRON = [
    ("llama-3-8b", "model=4", ["--rules", "megatron"], "all_reduce", "4 L", 4 * LAYERS, "2 b s h (t-1)/t",
     2 * STREAM * 3 / 4),
    *(("llama-3-8b", "model=4", ["--rules", "megatron-sp"], kind, "4 L + 2", 4 * LAYERS + 2, "b s h (t-1)/t",
       STREAM * 3 / 4) for kind in ("all_gather", "reduce_scatter")),
    ("llama-3-8b", "pipe=4", MICRO, "send", "2 m (p-1)", 2 * MICROBATCHES * 3, "b s h / m", STREAM / MICROBATCHES),
    ("llama-3-8b", "pipe=4", [*MICRO, "--virtual-stages", "2"], "send", "2 m (v p - 1)", 2 * MICROBATCHES * 7,
     "b s h / m", STREAM / MICROBATCHES),
    ("llama-3-8b", "pipe=4,model=2", [*MICRO, "--rules", "megatron-sp"], "send", "2 m (p-1)", 2 * MICROBATCHES * 3,
     "b s h / (m t)", STREAM / MICROBATCHES / 2),
    *(("mixtral-8x7b", f"expert={e}", ["--rules", "dp"], kind, "2 L", 2 * LAYERS, "k b s h (e-1)/e^2", rows_of(e))
      for e in (8, 4) for kind in ("dispatch_rows", "combine_rows")),
]


def of_models(cleave):
    """The rows of the second table, and the ratio of bytes of each."""
    configs = os.path.join(os.path.dirname(__file__), "..", "data/configs")
    for config, mesh, how, kind, times, n, formula, each in MEGATRON:
        command = [cleave, "plan", "-m", f"{configs}/{config}.json", "--mesh", mesh, "--batch", str(BATCH), "--seq",
                   str(SEQ), "--dtype", "bf16", "--hardware", "h100-nvlink-ib", "--collectives", "--json", *how]
        listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["collectives"]
        mine = [c["bytes"] for c in listed if c["kind"] == kind and c["bytes"] > 1e6 and c["purpose"] != "vocabulary"]
        options = " ".join(how).replace(" ".join(MICRO), "").replace("--rules ", "").strip()
        yield (f"| {config} | {mesh} | {options} | {kind} | {times} = {n} | {formula} = {each / 1e6:.1f} | "
               f"{len(mine)} | {sum(mine) / len(mine) / 1e6:.1f} |", sum(mine) / (n * each))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cleave", default="build/cleave")
    parser.add_argument("--xla", default="bench/xla_bytes.json")
    parser.add_argument("--docs", help="the tree whose pages are held to the table")
    options = parser.parse_args()
    with open(options.xla) as file:
        cases = least(json.load(file)["cases"])
    ratios, rows = [], []
    print("| block | layouts | mesh | pass | XLA MB | cleave MB | ratio |")
    print("|---|---|---|---|---|---|---|")
    for case in cases:
        bytes_ = ours(options.cleave, case)
        ratio = bytes_ / case["bytes"] if case["bytes"] else float(bytes_ > 0)
        ratios.append(ratio)
        rows.append(f"| {case['block']} | {case['layouts']} | {case['mesh']} | {case['pass']} | "
                    f"{case['bytes'] / 1e6:.3f} | {bytes_ / 1e6:.3f} | {ratio:.2f} |")
        print(rows[-1])
    print("\n| model | mesh | | kind | Megatron-LM's number | MB each | number | MB each |")
    print("|---|---|---|---|---|---|---|---|")
    beside = list(of_models(options.cleave))
    rows += [row for row, _ in beside]
    print("\n".join(row for row, _ in beside))
    faults = [f"cleave moves more than Megatron-LM: {row}" for row, ratio in beside if ratio > 1.01]
    faults += [f"cleave moves more than XLA in a case: {max(ratios):.3f}"] if max(ratios) > 1.01 else []
    if options.docs:
        with open(f"{options.docs}/docs/bytes.md") as bytes_md, open(f"{options.docs}/README.md") as readme:
            page, bounds = bytes_md.read(), f"{min(ratios):.1f} to {max(ratios):.1f} of it"
            faults += [f"docs/bytes.md lacks {row}" for row in rows if row not in page]
            faults += [] if bounds in readme.read() else [f"README.md does not say {bounds}"]
    print("".join(f"{fault}\n" for fault in faults), end="", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
