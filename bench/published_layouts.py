#!/usr/bin/env python3
"""What `cleave plan --search` finds beside layouts that are published as best, both by our prices: docs/planner.md.

    bench/published_layouts.py [--cleave build/cleave] [CASE...]

A published layout is its mesh and rules, with the options that a search finds for it.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import published_metrics

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRAIN = ["--train", "--overlap"]
PALM = ["--hardware", "tpu-v4", "--software", "pope-2022", "--seq", "2048"]
H100 = ["--hardware", "h100-nvlink-ib", "--seq", "8192"]

# name: model, options, devices, published mesh, rules, source
CASES = {
    "405b-16384": ("llama-3-405b", [*TRAIN, *H100, "--batch", "2048"], 16384, "pipe=16,data=128,model=8",
                   "zero1+megatron-sp", "arXiv:2407.21783, table 4"),
    "405b-512": ("llama-3-405b", [*TRAIN, *H100, "--batch", "512"], 512, "pipe=16,data=4,model=8",
                 "zero1+megatron-sp", "the same, fewer data ranks"),
    "405b-512-torchtitan": ("llama-3-405b", [*TRAIN, *H100, "--batch", "512"], 512, "pipe=8,data=8,model=8",
                            "fsdp+megatron-sp", "torchtitan, llama3_h100_202412, table 5"),
    "70b-v5p": ("llama-3-70b", [*TRAIN, "--hardware", "tpu-v5p", "--inventory", "1 hosts x 8192", "--batch", "1024",
                                "--seq", "4096"], 8192, "data=1024,context=2,model=4", "fsdp+megatron-sp",
                "How to Scale Your Model, part 6"),
    "palm-decode-64": ("palm", ["--decode", *PALM, "--batch", "64", "--quant", "q8"], 64, "X=4,Y=16", "gspmd-2d",
                       "arXiv:2211.05102, table 2: WS 2D"),
    "palm-decode-512": ("palm", ["--decode", *PALM, "--batch", "512"], 64, "X=4,Y=16", "gspmd-2d",
                        "arXiv:2211.05102, table 2: WS 2D"),
    "palm-prefill-512": ("palm", ["--prefill", *PALM, "--batch", "512"], 64, "data=64", "fsdp",
                         "arXiv:2211.05102, table 2: WG XYZ"),
}


def first(cleave, folder, case, mesh=None, rules=None):
    """The best candidate, of a mesh if it is given; or why there is none."""
    model, options, devices = CASES[case][:3]
    path = folder / "palm.json" if model == "palm" else ROOT / "data/configs" / f"{model}.json"
    where = [] if "--inventory" in options else ["--devices", str(devices)]
    where = ["--mesh", mesh, "--rules", rules] if mesh else where
    command = [cleave, "plan", "-m", path, "--dtype", "bf16", "--search", "--json", "--most", "1", *options, *where]
    run = subprocess.run(command, capture_output=True, text=True)
    return json.loads(run.stdout)["ranked"][0] if run.returncode == 0 else run.stderr.strip()


def layout(c):
    stages = f", {c['virtual_stages']} virtual" if c["virtual_stages"] > 1 else ""
    return f"`{c['mesh']}`, {c['rules']}{stages}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cleave", default=ROOT / "build/cleave")
    parser.add_argument("case", nargs="*", choices=[[], *CASES], default=list(CASES))
    options = parser.parse_args()
    print("| case | found | seconds | published | seconds | slower by |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "palm.json").write_text(json.dumps(published_metrics.PALM))
        for case in options.case:
            found = first(options.cleave, folder, case)
            mesh, rules, source = CASES[case][3:]
            published = first(options.cleave, folder, case, mesh, rules)
            if isinstance(found, str):
                sys.exit(f"{case}: {found}")
            row = f"| {case} | {layout(found)} | {found['seconds']:.4g} | "
            if isinstance(published, str):
                print(f"{row}`{mesh}`, {rules} ({source}) | {published} | |", flush=True)
                continue
            slower = published["seconds"] / found["seconds"] - 1
            row += f"{layout(published)} ({source}) | {published['seconds']:.4g} |"
            print(f"{row} {100 * slower:.1f} % |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
