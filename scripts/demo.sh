#!/usr/bin/env bash
# demo.sh - what `make run` shows: trains a small transformer split over two ranks on this project's own sources as they
# stood (data/corpus.txt, frozen), then generates from its checkpoint. About a minute on two cores.
#
# The checkpoint is runs/demo/model. It replaces that of an earlier `make run`, and nothing else: a folder without our
# mark is left alone. CLV_RUN_OUT names another folder than runs/demo, CLV_RUN_STEPS another number of steps.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${CLV_RUN_OUT:-runs/demo}
mark=$out/.made-by-make-run
cleave=${CLV_BUILD_DIR:-build}/cleave

if [ -L "$out" ] || { [ -e "$out" ] && [ ! -f "$mark" ]; }; then
    echo "$out exists, and 'make run' did not make it; give another folder: CLV_RUN_OUT=DIR make run" >&2
    exit 1
fi
mkdir -p "$out"
touch "$mark"
rm -rf "$out/model"

echo "== training: -tp 2 --sp, a byte a token, $(wc -c < data/corpus.txt) bytes of text"
"$cleave" train --text data/corpus.txt --out "$out/model" -tp 2 --sp \
    --layers 4 --hidden 224 --heads 7 --seq 352 --batch 6 --steps "${CLV_RUN_STEPS:-350}" --lr 0.004 --seed 1

echo
echo "== generating 300 bytes from $out/model: -tp 2"
"$cleave" generate -m "$out/model" -p '/* layout.h - where each part of a tensor lives' -n 300 -tp 2 --temp 0.7 -s 1
