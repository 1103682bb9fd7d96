#!/usr/bin/env bash
# compare_overlap.sh BUILD [MPI [RATE]]: what --overlap brings where it is for: two hosts (network namespaces, as in
# tests/hosts/network.sh) and a link of RATE (2gbit) between them. The links are measured; then a training step and a
# forward pass of blocks run without and with it, in turn, three times each; a table of medians, and what was
# predicted.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/hosts/network.sh
. "$here/../tests/hosts/network.sh"
[ $# -ge 1 ] || {
    echo "usage: bench/compare_overlap.sh BUILD [openmpi|mpich [RATE]]" >&2
    exit 2
}
hosts_enter "$@"
cleave=$1/cleave mpi=${2:-openmpi} rate=${3:-2gbit}
work=$CLV_HOSTS_INSIDE/work
mkdir "$work"
blocks=(--hidden 512 --layers 2 --heads 8 --ffn 2048 --gated --batch 4 --seq 512 -tp 2 --sp --iterations 3)

hosts_make h1 h2
hosts_shape "$rate" || hosts_skip "tc does not shape here"
hosts_launch "$mpi" 1 "$cleave" bench profile --blocks 1 --out "$work/hosts.json" >"$work/profile" 2>"$work/log" || {
    cat "$work/log"
    exit 1
}
grep -A3 '^hosts' "$work/profile" || true

# run NAME OPTIONS...: adds a line "median predicted" to $work/NAME.
run() {
    local name=$1
    shift
    hosts_launch "$mpi" 1 "$cleave" bench block "${blocks[@]}" --hardware "$work/hosts.json" "$@" >"$work/out" \
        2>"$work/log" || {
        cat "$work/log"
        exit 1
    }
    awk '$1 == "median_ms" { m = $2 } $1 == "predicted_ms" { p = $2 } END { print m, p }' "$work/out" >>"$work/$name"
}

median() { # column, file
    sort -g -k "$1,$1" "$2" | awk -v c="$1" '{ v[NR] = $c } END { print v[int((NR + 1) / 2)] }'
}

for _ in 1 2 3; do
    for pass in "train --train" "forward"; do
        # shellcheck disable=SC2086 # words
        set -- $pass
        run "$1-one-by-one" "${@:2}"
        run "$1-overlap" "${@:2}" --overlap
    done
done
printf '%-8s  %12s  %12s  %9s  %12s  %12s\n' pass one_by_one_ms overlap_ms ratio predicted_ms predicted_ms
for pass in train forward; do
    before=$work/$pass-one-by-one after=$work/$pass-overlap
    printf '%-8s  %12.1f  %12.1f  %9.2f  %12.1f  %12.1f\n' "$pass" "$(median 1 "$before")" "$(median 1 "$after")" \
        "$(awk -v a="$(median 1 "$after")" -v b="$(median 1 "$before")" 'BEGIN { print a / b }')" \
        "$(median 2 "$before")" "$(median 2 "$after")"
done
