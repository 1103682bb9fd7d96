#!/usr/bin/env python3
"""The bytes of `cleave plan --block` beside XLA's (bench/xla_bytes.json), as a Markdown table.

For each case the least that XLA needed over the ways of stating layouts that bench/xla_bytes.py tries. Exits with 1
when cleave moves more in any case (1 % is allowed: moments of norms travel as f64), or, with --docs, when a row is not
in docs/bytes.md, or README.md does not say within what bounds the ratios are.

    python bench/compare_bytes.py [--cleave build/cleave] [--xla bench/xla_bytes.json] [--docs .]
"""
import argparse
import json
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
    faults = [f"cleave moves more than XLA in a case: {max(ratios):.3f}"] if max(ratios) > 1.01 else []
    if options.docs:
        with open(f"{options.docs}/docs/bytes.md") as bytes_md, open(f"{options.docs}/README.md") as readme:
            page, bounds = bytes_md.read(), f"{min(ratios):.1f} to {max(ratios):.1f} of it"
            faults += [f"docs/bytes.md lacks {row}" for row in rows if row not in page]
            faults += [] if bounds in readme.read() else [f"README.md does not say {bounds}"]
    print("".join(f"{fault}\n" for fault in faults), end="", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
