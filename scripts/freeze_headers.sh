#!/usr/bin/env bash
# Keeps the public headers, and the examples with their test, as they are now under tests/abi/MAJOR.MINOR: programs
# built against them must run with every later library of this major version (ctest -R abi). Below 1.0 nothing is
# promised yet, and the one frozen copy may be made anew; from 1.0 on each minor version is frozen once, when it is
# released.
# usage: scripts/freeze_headers.sh
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^project(cleave VERSION \([0-9]*\.[0-9]*\).*/\1/p' CMakeLists.txt)
[ -n "$version" ] || { echo "CMakeLists.txt states no version" >&2; exit 1; }
to=tests/abi/$version
if [ "${version%%.*}" -ge 1 ] && [ -e "$to" ]; then
    echo "$to is frozen for good: raise the version in CMakeLists.txt" >&2
    exit 1
fi
[ "${version%%.*}" -ge 1 ] || rm -rf tests/abi/0.*
mkdir -p "$to/include" "$to/examples"
cp -r include/cleave "$to/include"
cp examples/*.c examples/*.cpp examples/*.h "$to/examples"
cp tests/test_examples.c "$to"
echo "frozen: $to"
