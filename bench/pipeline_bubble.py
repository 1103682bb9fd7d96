"""Holds the share of a step in which pipeline stages wait against what is known of it.

usage: python3 bench/pipeline_bubble.py [BUILD] [--stages N] [--layers N] [--steps N] [--schedules NAME...]

Each stage is a process of one core (a waiting rank of the same process would take over work of the other one). Waiting
is that of `cleave trace` over steps but the first. Vocabulary and optimizer are small, so stages are equal: known is
(p - 1) / (m + p - 1), and (p - 1) / (2 m + p - 1) of two runs of layers a stage; the plan's is held to it by
tests/test_pipeline.c.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import turns

SIZES = "--hidden 512 --heads 8 --seq 128"


def measure(build: str, folder: str, a: argparse.Namespace, schedule: str, microbatches: int) -> float:
    trace = f"{folder}/trace.json"
    text = pathlib.Path(__file__).parent.parent / "data/corpus.txt"
    runs = 2 if schedule == "interleaved" else 1
    subprocess.run(
        f"mpirun --oversubscribe -np {a.stages} --bind-to core {build}/cleave train --text {text} {SIZES} "
        f"--layers {a.layers} --mesh pipe={a.stages} --virtual-stages {runs} --pipeline-schedule {schedule} "
        f"--batch {2 * microbatches} --accumulate {microbatches} --steps {a.steps} --trace 1:{a.steps - 1} "
        f"{trace} --out {folder}/{schedule}-{microbatches}",
        shell=True,
        check=True,
        capture_output=True,
        env=turns.environment([0]),
    )
    table = json.loads(subprocess.run([f"{build}/cleave", "trace", trace, "--json"], capture_output=True).stdout)
    of_all = next(row for row in table["parts"] if row["part"] == "all")
    return of_all["waiting"] / of_all["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--schedules", nargs="+", default=["gpipe", "1f1b", "interleaved", "zero-bubble"])
    a = parser.parse_args()
    print("schedule      m   known  measured")
    with tempfile.TemporaryDirectory() as folder:
        for schedule in a.schedules:
            for m in (2, 4, 8):
                runs = 2 if schedule == "interleaved" else 1
                known = (a.stages - 1) / (runs * m + a.stages - 1)
                waits = measure(str(pathlib.Path(a.build).resolve()), folder, a, schedule, m)
                text = "" if schedule == "zero-bubble" else f"{known:.3f}"
                print(f"{schedule:12} {m:2}  {text:>6}  {waits:8.3f}", flush=True)


if __name__ == "__main__":
    main()
