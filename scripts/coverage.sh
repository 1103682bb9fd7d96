#!/usr/bin/env bash
# coverage.sh - lines that the tests execute, by folder of src/: a build of its own in build-coverage, read by gcov.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build-coverage

cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS="--coverage -O1" >/dev/null
cmake --build "$build" -j "$(nproc)" >/dev/null
find "$build" -name '*.gcda' -delete
ctest --test-dir "$build" -E '^(install|layers)$' >/dev/null

for folder in src/*/; do
    folder=${folder%/}
    find "$build" -path "*/$folder/*" -name '*.gcda' | while read -r data; do
        gcov -n -o "$(dirname "$data")" "$data" 2>/dev/null | grep -A1 "/$folder/" | grep '^Lines executed' || true
    done | sed 's/Lines executed:\([0-9.]*\)% of \([0-9]*\)/\1 \2/' |
        awk -v folder="$folder" '{ hit += $1 * $2 / 100; all += $2 }
            END { if (all) printf "%-14s %5.1f %% of %d lines\n", folder, 100 * hit / all, all }'
done
