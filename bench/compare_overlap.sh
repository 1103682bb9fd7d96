#!/usr/bin/env bash
# compare_overlap.sh BUILD [MPI [RATE]]: how much of an SP block's communication --overlap hides: over MPI between two
# hosts (network namespaces, as in tests/hosts/network.sh) with a link of RATE (1gbit) between them, and between
# threads. The links are measured; then blocks run without and with it, in turn, three times each, for five runs; a
# table of the fastest, as others may use the cores. comm_ms: in collectives, one by one; hidden: by how much of it the
# time fell; measured: overlapped_share.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/hosts/network.sh
. "$here/../tests/hosts/network.sh"
[ $# -ge 1 ] || {
    echo "usage: bench/compare_overlap.sh BUILD [openmpi|mpich [RATE]]" >&2
    exit 2
}
hosts_enter "$@"
cleave=$1/cleave mpi=${2:-openmpi} rate=${3:-1gbit}
work=$CLV_HOSTS_INSIDE/work
mkdir "$work"
blocks=(--hidden 512 --layers 2 --heads 8 --ffn 2048 --gated -tp 2 --sp --iterations 5)

hosts_make h1 h2
hosts_shape "$rate" || hosts_skip "tc does not shape here"
between_hosts() { hosts_launch "$mpi" 1 "$@"; }
between_threads() { "$@"; }

# profile HOW: measures what options of prediction take.
profile() {
    "between_$1" "$cleave" bench profile --blocks 1 --out "$work/$1.json" >"$work/out" 2>"$work/log" || {
        cat "$work/log"
        exit 1
    }
}

# run NAME HOW OPTIONS...: adds a line "fastest comm overlapped predicted" to $work/NAME: ms, ms, a share, ms.
run() {
    local name=$1 how=$2
    shift 2
    "between_$how" "$cleave" bench block "${blocks[@]}" --hardware "$work/$how.json" "$@" >"$work/out" \
        2>"$work/log" || {
        cat "$work/log"
        exit 1
    }
    awk '$1 == "min_ms" { m = $2 } $1 == "comm_share" { c = $2 / 100 } $1 == "overlapped_share" { o = $2 }
         $1 == "predicted_ms" { p = $2 } END { print m, m * c, o + 0, p }' "$work/out" >>"$work/$name"
}

least() { # column, file
    sort -g -k "$1,$1" "$2" | awk -v c="$1" 'NR == 1 { print $c }'
}

row() { # name, what is timed
    local before=$work/$1-one-by-one after=$work/$1-overlap
    awk -v name="$2" -v a="$(least 1 "$before")" -v c="$(least 2 "$before")" -v b="$(least 1 "$after")" \
        -v m="$(least 3 "$after")" -v pa="$(least 4 "$before")" -v pb="$(least 4 "$after")" 'BEGIN {
        printf "%-28s  %13.1f  %7.1f  %10.1f  %5.0f %%  %6.0f %%  %9.1f  %9.1f\n", name, a, c, b, 100 * (a - b) / c, m,
               pa, pb }'
}

profile hosts
profile threads
for _ in 1 2 3; do
    for how in hosts threads; do
        for shape in "4 512" "1 2048"; do
            # shellcheck disable=SC2086 # words
            set -- $shape
            for pass in forward train; do
                options=(--batch "$1" --seq "$2")
                [ $pass = forward ] || options+=(--train)
                run "$how-$1-$pass-one-by-one" $how "${options[@]}"
                run "$how-$1-$pass-overlap" $how "${options[@]}" --overlap
            done
        done
    done
done
printf '%-28s  %13s  %7s  %10s  %7s  %8s  %9s  %9s\n' blocks one_by_one_ms comm_ms overlap_ms hidden measured \
    predicted predicted
for how in hosts threads; do
    for batch in 4 1; do
        for pass in forward train; do
            row $how-$batch-$pass "$how, batch $batch, $pass"
        done
    done
done
