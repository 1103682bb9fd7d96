#!/usr/bin/env bash
# The manual as HTML, by Doxygen, from the public headers and docs/: BUILD/manual/html/index.html. A warning is an
# error.
# usage: scripts/build_docs.sh [BUILD]     default: build
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-build}")/manual
version=$(sed -n 's/^project(cleave VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
rm -rf "$out"
mkdir -p "$out"
sed "s|{version}|$version|; s|{output}|$out|" docs/Doxyfile | doxygen -
for page in index.html session_8h.html structclv__session__options.html; do
    [ -s "$out/html/$page" ] || { echo "the manual has no $page"; exit 1; }
done
echo "$out/html/index.html"
