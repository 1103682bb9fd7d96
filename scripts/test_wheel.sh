#!/usr/bin/env bash
# Builds the Python package as a user does, by `pip install .`, the library with it, and runs what its docstrings show.
# usage: scripts/test_wheel.sh DIR
#        exits 77, with a line that says why, where Python or its packages cannot be had
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
venv=$(cd "$1" && pwd)/whole
skip() { echo "wheel: skipped: $*"; exit 77; }

python3 -c 'import ensurepip, venv' 2>/dev/null ||
    skip "there is no python3 that makes virtual environments (make setup)"
rm -rf "$venv" && python3 -m venv "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 'numpy' 'cffi>=1.15' 2>"$1/pip.log" ||
    skip "the package index gives no numpy and cffi ($(tail -n 1 "$1/pip.log"))"
"$venv/bin/pip" install -q --disable-pip-version-check --config-settings=cmake.define.CLV_WERROR=ON "$source"
cd "$1" # where no folder is called cleave
"$venv/bin/python" -c 'import cleave, doctest; exit(doctest.testmod(cleave).failed)'
"$venv/bin/python" - <<'P'
import pathlib
import shutil
import cleave
inside = pathlib.Path(cleave.__file__).parent
assert list(inside.glob("**/libcleave.so*")), f"no library in {inside}"
for mpi in ("openmpi", "mpich"):
    there = (inside / f"cleave_mpi_{mpi}.so").exists()
    assert there or not shutil.which(f"mpicc.{mpi}"), f"no module for {mpi} in {inside}"
P
echo "wheel: pip install . works"
