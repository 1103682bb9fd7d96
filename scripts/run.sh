#!/usr/bin/env bash
# run.sh - what `make run` shows: trains a small transformer split over two ranks on this project's own sources as they
# stood (data/corpus.txt, frozen), then generates from its checkpoint. About a minute on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

out=runs/first
rm -rf "$out"
mkdir -p runs

echo "== training: -tp 2 --sp, a byte a token, $(wc -c < data/corpus.txt) bytes of text"
build/cleave train --text data/corpus.txt --out "$out" -tp 2 --sp \
    --layers 4 --hidden 224 --heads 7 --seq 352 --batch 6 --steps 350 --lr 0.004 --seed 1

echo
echo "== generating 300 bytes from $out: -tp 2"
build/cleave generate -m "$out" -p '/* layout.h - where each part of a tensor lives' -n 300 -tp 2 --temp 0.7 -s 1
