"""Whether one build of cleave is as fast as another: both run the same work in alternation, so that what else the
machine does meets both. usage: python bench/compare_builds.py BEFORE AFTER -m DIR [--pairs 15]

BEFORE and AFTER are cleave programs. For each work the median over pairs of after / before, and the range that half of
the pairs are in: seconds of a training step of four blocks (f32, bf16), tokens/s of reading a prompt and of writing
after it.
"""

import argparse
import json
import statistics
import subprocess

BLOCK = "bench block --hidden 512 --layers 4 --heads 8 --ffn 2048 --gated -tp 2 --train --batch 2 --seq 128".split()
BLOCK.append("--json")
WORKS = [
    ("training step f32, s", BLOCK, "min_ms"),
    ("training step bf16, s", [*BLOCK, "--dtype", "bf16"], "min_ms"),
    ("prompt, tokens/s", None, "prefill_tokens_per_s"),
    ("text, tokens/s", None, "decode_tokens_per_s"),
]


def run(program: str, arguments: list[str]) -> dict[str, float]:
    out = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    return json.loads(out)


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("before")
    p.add_argument("after")
    p.add_argument("-m", dest="model", required=True, metavar="DIR")
    p.add_argument("--pairs", type=int, default=15)
    a = p.parse_args()
    generate = f"bench generate -m {a.model} -p 64 -n 128 -tp 2 --json".split()
    ratios: dict[str, list[float]] = {name: [] for name, _, _ in WORKS}
    for i in range(a.pairs):
        programs = [a.before, a.after] if i % 2 == 0 else [a.after, a.before]
        for arguments in (WORKS[0][1], WORKS[1][1], generate):
            said = {program: run(program, arguments) for program in programs}
            for name, own, field in WORKS:
                if (own or generate) is arguments:
                    ratios[name].append(said[a.after][field] / said[a.before][field])
    for name, r in ratios.items():
        low, _, high = statistics.quantiles(r, n=4) if len(r) > 1 else 3 * r  # of one pair there is no range
        print(f"{name:24} {statistics.median(r):.3f}   {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
