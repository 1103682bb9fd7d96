#!/usr/bin/env python3
"""cleave and its peers on the same work, in alternation, on pinned cores, beside the machine's limits; `make bench`.
usage: python3 bench/compare.py [--rows NAME...] [--rounds 5] [--seconds 60] [--build build] [--peers build-peers]
           [--samples docs/performance.json] [--out docs/performance.md]
       python3 bench/compare.py --list | --report | --chart FILE.svg

--rows: those whose names begin so; others keep what --samples has of them. --seconds: of a row at most, whose rounds
are then fewer (half an hour for all at 60). --report: the page alone, of samples that are there; --chart: README's
picture of them. Peers that are not installed (bench/install_peers.sh) are named so. The page gets an SVG beside it.
Needs a built cleave and a C compiler; models of 2.5 GB are made in --models.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

import report
import rows
import turns

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8")


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", nargs="+", default=[""])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--peers", type=pathlib.Path, default=ROOT / "build-peers")
    p.add_argument("--models", type=pathlib.Path, default=ROOT / "build-peers/models")
    p.add_argument("--samples", type=pathlib.Path, default=ROOT / "docs/performance.json")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/performance.md")
    p.add_argument("--list", action="store_true")
    p.add_argument("--report", action="store_true")
    p.add_argument("--chart", type=pathlib.Path)
    return p.parse_args()


def first_line(command: list[object]) -> str:
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    except OSError:
        return ""
    return " ".join(done.stdout.splitlines()[0].split()) if done.returncode == 0 and done.stdout else ""


def versions(s: rows.Setup) -> dict[str, str]:
    found = {"cleave": first_line([s.cleave, "version"]), "Open MPI": first_line(["mpirun.openmpi", "--version"])}
    python = s.peers / "venv/bin/python"
    for name, package in (("PyTorch", "torch"), ("JAX", "jax"), ("transformers", "transformers")):
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        found[name] = first_line([python, "-c", code]) if python.exists() else ""
    for name in ("llama.cpp", "llm.c", "llama2.c", "distributed-llama"):
        file = s.peers / name / "version.txt"
        found[name] = file.read_text().strip() if file.exists() else ""
    return found


def machine(s: rows.Setup) -> dict:
    cpu = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    name = re.search(r"model name\s*: (.*)", cpu)
    flags = set((re.search(r"flags\s*: (.*)", cpu) or [" ", ""])[1].split())
    return {
        "cpu": name[1] if name else platform.machine(),
        "flags": [flag for flag in FLAGS if flag in flags],
        "cores": len(os.sched_getaffinity(0)),
        "pinned": s.cores,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "versions": versions(s),
    }


def measure(row: rows.Row, s: rows.Setup, a: argparse.Namespace) -> dict:
    began, others = datetime.datetime.now(), turns.Others()
    makers = {name: (lambda make=part.make: make(s)) for name, part in row.parts.items() if part.make}
    series, faults = turns.alternate(makers, a.rounds, a.seconds)
    return {
        "unit": row.unit,
        "commit": first_line(["git", "-C", a.build, "rev-parse", "--short", "HEAD"]),
        "when": began.isoformat(timespec="seconds"),
        "others": round(others.cores(), 2),
        "samples": series,
        "absent": faults,
    }


def main() -> None:
    a = arguments()
    wanted = [row for row in rows.ROWS if any(row.name.startswith(name) for name in a.rows)]
    unknown = [name for name in a.rows if not any(row.name.startswith(name) for row in rows.ROWS)]
    if unknown:
        sys.exit(f"compare.py: no row's name begins with {unknown[0]!r}; --list names them")
    if a.rounds < 1 or a.seconds <= 0:
        sys.exit("compare.py: --rounds and --seconds are above 0")
    if not (a.list or a.report or a.chart or (a.build / "cleave").exists()):
        sys.exit(f"compare.py: there is no cleave in {a.build}; run make, or give --build")
    if a.list:
        print("\n".join(f"{row.name:20} {row.title}" for row in wanted))
        return
    setup = rows.Setup(a.build.resolve(), a.peers.resolve(), a.models.resolve())
    stored = json.loads(a.samples.read_text()) if a.samples.exists() else {"rows": {}}
    if not (a.report or a.chart):
        stored["machine"] = machine(setup)
        for row in wanted:
            print(row.title, file=sys.stderr, flush=True)
            stored["rows"][row.name] = measure(row, setup, a)
            print(report.line(row, stored["rows"][row.name]), file=sys.stderr, flush=True)
            a.samples.write_text(json.dumps(stored, indent=1) + "\n")
    if a.chart:
        a.chart.write_text(report.chart(stored, rows.ROWS))
        return
    report.write(a.out, stored, rows.ROWS)


if __name__ == "__main__":
    main()
