#!/usr/bin/env python3
"""Compiles each file of a build by clang, as far as its warnings go: gcc's code is the one that runs.

usage: scripts/check_clang.py BUILD      what `cmake --preset release` configured; nothing need be built
"""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys


def check(entry):
    """What clang says of a file; "": nothing."""
    words = shlex.split(entry["command"])
    compiler = next(i for i, word in enumerate(words) if re.fullmatch(r"(.*/)?(cc|gcc)(-\d+)?", word))
    options = words[compiler + 1:]
    output = options.index("-o")
    options[output:output + 2] = []
    options.remove("-c")
    done = subprocess.run(["clang", "-fsyntax-only", "-Wno-unknown-warning-option", *options], cwd=entry["directory"],
                          capture_output=True, text=True)
    return done.stderr if done.returncode else ""


with open(os.path.join(sys.argv[1], "compile_commands.json")) as f:
    entries = [entry for entry in json.load(f) if entry["file"].endswith(".c")]
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    said = [text for text in pool.map(check, entries) if text]
print(*said, sep="\n", end="")
print(f"clang: {len(entries)} files, {len(said)} with warnings or errors")
sys.exit(bool(said) or not entries)
