"""What a trace costs: the same training step of blocks with --trace-out and without it, in pairs. usage:
python bench/compare_trace.py [--build build] [--pairs 40] [--iterations 3] [-- OPTIONS of cleave bench block]

Needs a built cleave alone. Each pair is two processes, the first of which is another one every time; each gives the
fastest of its iterations, which says least about who else uses the machine. Prints the medians of both, milliseconds,
and the median over pairs of traced / plain with the range of the middle half.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

USUAL = ["--hidden", "512", "--layers", "4", "--batch", "4", "--seq", "512", "-tp", "2", "--train"]


def best(build, options, iterations, trace):
    command = [os.path.join(build, "cleave"), "bench", "block", *options, "--iterations", str(iterations), "--json"]
    done = subprocess.run(command + (["--trace-out", trace] if trace else []), check=True, capture_output=True)
    return json.loads(done.stdout)["min_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("options", nargs="*", default=USUAL)
    args = parser.parse_args()
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        for k in range(args.pairs):
            order = [None, trace] if k % 2 else [trace, None]
            took = {at: best(args.build, args.options, args.iterations, at) for at in order}
            pairs.append((took[None], took[trace]))
    ratios = sorted(traced / plain for plain, traced in pairs)
    middle = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    plain, traced = (statistics.median(p[i] for p in pairs) for i in range(2))
    print(f"plain {plain:.2f} ms, traced {traced:.2f} ms, traced / plain {statistics.median(ratios):.4f}")
    print(f"{args.pairs} pairs, the middle half {middle[0]:.4f} to {middle[1]:.4f}")


if __name__ == "__main__":
    main()
