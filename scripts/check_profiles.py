#!/usr/bin/env python3
"""Hardware profiles of data/profiles: each has the name of its file, a source, keys that the library reads, figures in
the range of real machines, links that slow down outwards, and fitted figures with the rows behind them; names each
that has not.
usage: scripts/check_profiles.py [FOLDER]     FOLDER: of profiles to check, default data/profiles of this tree
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
READER = ROOT / "src/program/cost/machine_profile.c"
REQUIRED = ("name", "source", "ranks_per_host", "hosts", "memory_bytes", "flops_per_s", "memory_bytes_per_s",
            "efficiency", "instruction_s", "host")  # fmt: skip
# Least and largest figure of a rank, from one core of a CPU to accelerators of the years to come.
RANGES = {
    "ranks_per_host": (1, 1 << 20), "hosts": (0, 1 << 20), "memory_bytes": (1e9, 1e12),
    "memory_bytes_per_s": (1e9, 5e13), "efficiency": (0.2, 0.95), "instruction_s": (1e-7, 5e-5),
}  # fmt: skip
FLOPS = (1e10, 1e17)
LINK = {"alpha_s": (1e-7, 1e-3), "bytes_per_s": (5e7, 5e12)}
SHARE = (1e-3, 1)
SOURCE = 80  # characters: a data sheet and what was measured cannot be named in fewer
DTYPES = ("f64", "f32", "f16", "bf16")


def keys_of_the_library():
    """The keys that machine_profile.c accepts."""
    table = re.search(r"profile_key keys\[\] = \{(.*?)\};", READER.read_text(), re.S)
    return set(re.findall(r"(?:OTHER|NUMBER)\((\w+)", table.group(1)))


def outside(where, value, limits):
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return [f"{where} is {value!r}; valid: a number"]
    return [] if limits[0] <= value <= limits[1] else [f"{where} is {value:g}; valid: {limits[0]:g} to {limits[1]:g}"]


def faults_of_links(profile):
    found = []
    for link in ("host", "network"):
        figures = profile.get(link)
        if link == "network" and profile.get("hosts") == 1 and figures is None:
            continue
        if not isinstance(figures, dict) or set(figures) < set(LINK):
            found.append(f'"{link}" needs {" and ".join(LINK)}')
            continue
        for key, limits in LINK.items():
            found += outside(f'"{link}": {key}', figures[key], limits)
        for ranks, share in figures.get("share", []):
            found += outside(f'"{link}": share of {ranks} ranks', share, SHARE)
    if not found and "network" in profile:
        inside, across = profile["host"], profile["network"]
        if across["bytes_per_s"] > inside["bytes_per_s"] or across["alpha_s"] < inside["alpha_s"]:
            found.append("collectives across hosts are faster than inside one")
    return found


def faults_of_fits(profile, folder):
    """A fitted figure stands beside its name, and its rows are of a software of a profile."""
    found = []
    for where, entry in [("", profile), *profile.get("software", {}).items()]:
        for figure, rows in entry.get("fitted", {}).items():
            if figure not in entry:
                found.append(f'"fitted": {figure} is no figure of {where or "the profile"}')
            for row in rows:
                name, _, software = row.partition("/")
                other = folder / f"{name}.json"
                if not other.exists() or software not in json.loads(other.read_text()).get("software", {}):
                    found.append(f'"fitted": {figure}: {row!r} is no software of a profile; valid: PROFILE/SOFTWARE')
    return found


def faults_of(path, valid):
    try:
        profile = json.loads(path.read_text())
    except ValueError as fault:
        return [f"not JSON: {fault}"]
    found = [f'"{key}" is missing' for key in REQUIRED if key not in profile]
    found += [f'unknown key "{key}"' for key in profile if key not in valid]
    if profile.get("name") != path.stem:
        found.append(f'"name" is {profile.get("name")!r}; valid: the name of the file, {path.stem!r}')
    if len(profile.get("source", "")) < SOURCE:
        found.append(f'"source" has fewer than {SOURCE} characters; valid: where each figure is from')
    for key, limits in RANGES.items():
        found += outside(f'"{key}"', profile.get(key), limits)
    flops = profile.get("flops_per_s", {})
    found += [f'"flops_per_s": {dtype} is missing' for dtype in ("f32", "bf16") if dtype not in flops]
    found += [f'"flops_per_s": {dtype} is no float dtype; valid: {", ".join(DTYPES)}' for dtype in flops
              if dtype not in DTYPES]
    for dtype, value in flops.items():
        found += outside(f'"flops_per_s": {dtype}', value, FLOPS)
    return found + faults_of_links(profile) + faults_of_fits(profile, path.parent)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "data/profiles"
    valid, bad = keys_of_the_library(), 0
    paths = sorted(folder.glob("*.json"))
    for path in paths:
        for fault in faults_of(path, valid):
            print(f"profiles: {path.name}: {fault}")
            bad += 1
    if not paths:
        print(f"profiles: {folder} has none")
    return 1 if bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
