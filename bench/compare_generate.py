#!/usr/bin/env python3
"""Generation by two rank threads, and by two processes; and bytes a token beside distributed-llama's. usage:
python bench/compare_generate.py [--build build] [--mpi openmpi mpich] [--rounds 7] [--ranks 2 4 8] [--dllama PROGRAM]

Makes a Llama of 134 million parameters (bench/random_llama.py). Times `cleave bench generate -tp 2` in alternation: for
each way the medians over rounds in tokens/s, and the median over rounds of what it is to threads, with the range that
half of the rounds are in. Then bytes that all ranks together send for a token that is decoded: as `cleave plan` and a
formula for distributed-llama (bench/distributed_llama.py) have them and, between hosts that are namespaces, as counted
(bench/wire_bytes.sh; not where namespaces cannot be made). distributed-llama's are counted where --dllama names its
program, made of its sources. --ranks alone leaves bytes out.

--docs TREE computes alone, and exits with 1 when docs/processes.md there does not have these numbers.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import distributed_llama
import random_llama

HERE = pathlib.Path(__file__).parent
FLAGS = {"openmpi": ["--oversubscribe", "--bind-to", "none"], "mpich": []}
CARRIED = {"f32": "f32", "q8": "q80"}  # cleave's --comm-dtype, and distributed-llama's --buffer-float-type
CONFIG = random_llama.config(random_llama.parse(["model"]))  # its own sizes
RATES = {"prompt": "prefill_tokens_per_s", "decoding": "decode_tokens_per_s"}


def run(command: list[str]) -> dict:
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout)


def time_ways(cleave: str, model: pathlib.Path, mpis: list[str], rounds: int) -> None:
    ways = {"threads": [], **{mpi: [f"mpirun.{mpi}", *FLAGS[mpi], "-np", "2"] for mpi in mpis}}
    work = [cleave, "bench", "generate", "-m", str(model), "-p", "128", "-n", "64", "-tp", "2", "--json"]
    found: dict[str, list[dict]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, launcher in ways.items():
            found[way].append(run([*launcher, *work]))
    print("two ranks   way       tokens/s   to threads")
    for what, name in RATES.items():
        threads = [r[name] for r in found["threads"]]
        for way, results in found.items():
            rates = [r[name] for r in results]
            low, middle, high = statistics.quantiles([a / b for a, b in zip(rates, threads, strict=True)], n=4)
            print(f"{what:11} {way:8} {statistics.median(rates):9.1f}   {middle:.2f}  {low:.2f} to {high:.2f}")


def planned(cleave: str, model: pathlib.Path, ranks: int, carried: str) -> int:
    """What the fullest rank receives, for as many: by convention 2 (n-1)/n of an all_reduce."""
    options = ["--decode", "--batch", "1", "--seq", "128", "-tp", str(ranks), "--comm-dtype", carried, "--json"]
    return ranks * round(run([cleave, "plan", "-m", str(model), *options])["bytes"])


def counted(hosts: int, tokens: int, way: str, folder: pathlib.Path, program: list[str]) -> str:
    command = [str(HERE / "wire_bytes.sh"), str(hosts), str(tokens), way, str(folder), *program]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 77):  # 77: no namespaces
        sys.exit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return f"{int(done.stdout) / 1e3:.1f}" if done.returncode == 0 else "-"


def computed_row(cleave: str, model: pathlib.Path, ranks: int, carried: str) -> str:
    theirs = distributed_llama.bytes_a_token(CONFIG, ranks, CARRIED[carried])
    return f"| {ranks} | {carried} | {planned(cleave, model, ranks, carried) / 1e3:.1f} | {theirs / 1e3:.1f} |"


def compare_bytes(a: argparse.Namespace, cleave: str, model: pathlib.Path) -> None:
    print("\nKB a token, all ranks together")
    print("| ranks | carried as | cleave plan | distributed-llama, by its source | cleave, counted | "
          "distributed-llama, counted |")
    print("|---|---|---|---|---|---|")
    for carried, sync in CARRIED.items():
        distributed_llama.write_model(model, CONFIG, sync)
        for ranks in a.ranks:
            ours = counted(ranks, 16, a.mpi[0], model, [cleave, "--comm-dtype", carried])
            can = a.dllama and CONFIG["num_key_value_heads"] % ranks == 0  # it says why
            theirs = "-"
            if can:
                theirs = counted(ranks, 128, "dllama", model, [a.dllama, "--buffer-float-type", sync])
            print(f"{computed_row(cleave, model, ranks, carried)} {ours} | {theirs} |", flush=True)


def missing_rows(a: argparse.Namespace, cleave: str, model: pathlib.Path) -> list[str]:
    page = (pathlib.Path(a.docs) / "docs/processes.md").read_text()
    rows = [computed_row(cleave, model, ranks, carried) for carried in CARRIED for ranks in a.ranks]
    return [row for row in rows if row not in page]


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--mpi", nargs="+", default=list(FLAGS), choices=list(FLAGS))
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--ranks", nargs="*", type=int, default=[2, 4, 8])
    p.add_argument("--dllama")
    p.add_argument("--docs")
    a = p.parse_args()
    cleave = os.path.abspath(f"{a.build}/cleave")
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model"
        if a.docs:
            model.mkdir()
            (model / "config.json").write_text(json.dumps(CONFIG))
            missing = missing_rows(a, cleave, model)
            print("".join(f"docs/processes.md lacks {row}\n" for row in missing), end="")
            return 1 if missing else 0
        subprocess.run([sys.executable, HERE / "random_llama.py", model], check=True)
        time_ways(cleave, model, a.mpi, a.rounds)
        if a.ranks:
            compare_bytes(a, cleave, model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
