"""cleave's all_reduce against MPI_Allreduce, in pairs in the same processes. usage:
python bench/compare_allreduce.py [--build build] [--mpi openmpi mpich] [--shapes 2x1 4x1 8x1 2x2] [--pairs 40]

Needs a build of cleave and mpicc.NAME and mpirun.NAME of each MPI. A shape is processes x rank threads of each. For
each the medians of both, microseconds, the least of both, and the median over pairs of ours / theirs with the range
that half of the pairs are in. With 2x2 and 4x1 both runs alternate, too.
"""

import argparse
import os
import statistics
import subprocess

FLAGS = {"openmpi": ["--oversubscribe", "--bind-to", "none"], "mpich": []}


def compile_for(mpi: str, build: str) -> str:
    out = f"{build}/allreduce_{mpi}"
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(here)
    sources = [f"{here}/allreduce_mpi.c", f"{root}/src/cli/bench/allreduce_program.c"]
    where = os.path.abspath(build)
    link = [f"-L{where}", "-lcleave", f"-Wl,-rpath,{where}"]
    subprocess.run(
        [f"mpicc.{mpi}", "-O3", f"-I{root}/include", f"-I{root}/src", *sources, "-o", out, *link], check=True
    )
    return out


def run(program: str, mpi: str, shape: str, size: int, pairs: int) -> list[tuple[float, float]]:
    processes, threads = (int(x) for x in shape.split("x"))
    command = [f"mpirun.{mpi}", *FLAGS[mpi], "-np", str(processes), program, str(processes * threads), str(size)]
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    out = subprocess.run([*command, str(pairs)], capture_output=True, text=True, check=True, env=env).stdout
    return [(float(a), float(b)) for a, b in (line.split() for line in out.splitlines())]


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--mpi", nargs="+", default=["openmpi", "mpich"], choices=list(FLAGS))
    p.add_argument("--shapes", nargs="+", default=["2x1", "4x1", "8x1", "2x2"])
    p.add_argument("--sizes", nargs="+", type=int, default=[16 << 10, 64 << 20])
    p.add_argument("--pairs", type=int, default=40)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    programs = {mpi: compile_for(mpi, a.build) for mpi in a.mpi}
    print("mpi      shape        bytes    ours us  theirs us  least us  theirs us   ratio")
    for mpi in a.mpi:
        for size in a.sizes:
            pairs = a.pairs if size <= 1 << 20 else max(2, a.pairs // 10)
            times: dict[str, list[tuple[float, float]]] = {shape: [] for shape in a.shapes}
            for _ in range(a.rounds):
                for shape in a.shapes:
                    times[shape] += run(programs[mpi], mpi, shape, size, pairs)
            for shape, t in times.items():
                ours, theirs = (statistics.median(x) for x in zip(*t, strict=True))
                low, middle, high = statistics.quantiles([a / b for a, b in t], n=4)
                least, their_least = (min(x) for x in zip(*t, strict=True))
                print(f"{mpi:8} {shape:5} {size:12} {ours:10.1f} {theirs:10.1f}", end="")
                print(f" {least:9.1f} {their_least:10.1f}   {middle:.2f}  {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main()
