#!/usr/bin/env bash
# Installs the Python package with the library of a build into a virtual environment of its own, and runs python/tests
# and mypy. With CLV_SWEEP=all the package is also built as a user builds it (test_wheel.sh).
# usage: scripts/test_python.sh BUILD_DIR
#        exits 77, with a line that says why, where Python or its packages cannot be had
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
venv=$build/python/venv
python=$venv/bin/python
skip() { echo "python: skipped: $*"; exit 77; }

command -v python3 >/dev/null || skip "there is no python3 (make setup)"
python3 -c 'import ensurepip, venv' 2>/dev/null || skip "this python3 makes no virtual environments (make setup)"
[ -f "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')/Python.h" ] ||
    skip "Python.h is not there (make setup)"
mkdir -p "$build/python"
[ -x "$python" ] || python3 -m venv "$venv"
have() { "$python" -c "import $1" 2>/dev/null; }
get() { "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 "$@" \
    2>"$build/python/pip.log"; }
have 'cffi, numpy, pytest, scikit_build_core' || get 'cffi>=1.15' numpy pytest 'scikit-build-core>=0.10' ||
    skip "the package index gives no cffi, numpy, pytest and scikit-build-core ($(tail -n 1 "$build/python/pip.log"))"
have 'mypy, ml_dtypes, pandas' || get mypy ml_dtypes pandas || echo "python: without mypy, ml_dtypes and pandas"

cd "$source"
"$venv/bin/pip" install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall . \
    --config-settings="cmake.define.CLEAVE_LIBRARY=$build/libcleave.so" --config-settings="build-dir=$build/python/work"
export CLV_SOURCE_DIR=$source CLV_BUILD_DIR=$build PYTHONDONTWRITEBYTECODE=1
(cd "$build/python" && "$python" -m pytest -q -p no:cacheprovider -c "$source/pyproject.toml" "$source/python/tests")
if have mypy; then
    "$python" -m mypy --cache-dir "$build/python/mypy"
fi
[ "${CLV_SWEEP:-}" = all ] || exit 0

exec "$source/scripts/test_wheel.sh" "$build/python"
