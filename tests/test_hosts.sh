#!/usr/bin/env bash
# test_hosts.sh BUILD MPI...: commands over three hosts (hosts/network.sh) by the launchers of these MPIs. What they
# print and write is what one process does, with links as they are and slow; when a link is cut in the middle, they end,
# and say which rank is missing.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/hosts/network.sh
. "$here/hosts/network.sh"
[ $# -ge 2 ] || hosts_skip "no MPI was found, or CLEAVE_MPI is off"
hosts_enter "$@"
cleave=$1/cleave
shift
mpis=("$@")
work=$CLV_HOSTS_INSIDE/work
log=$work/log

fail() {
    echo "$*"
    [ ! -f "$log" ] || tail -20 "$log"
    exit 1
}

# seconds_at_most N COMMAND...: what runs longer has failed, wherever it hangs.
seconds_at_most() {
    local limit=$1 job waited=0
    shift
    "$@" >"$work/out" 2>"$log" </dev/null &
    job=$!
    while kill -0 "$job" 2>/dev/null; do
        [ "$waited" -lt "$((limit * 20))" ] || fail "not ended after $limit s: $*"
        sleep 0.05
        waited=$((waited + 1))
    done
    wait "$job"
}

train_options=(--text "$work/text" --layers 2 --hidden 48 --heads 6 --seq 32 --batch 6 --seed 3)

expect_same_training() { # mpi, name, -tp, degree
    local mpi=$1 name=$2
    seconds_at_most 60 hosts_launch "$mpi" 1 "$cleave" train "${train_options[@]}" --steps 8 --out "$work/$name" \
        "${@:3}" || fail "$mpi: train $name failed"
    cmp "$work/alone$4/model.safetensors" "$work/$name/model.safetensors" || fail "$mpi: other weights, $name"
    rm -r "${work:?}/$name"
}

expect_same_text() { # mpi, name
    local degree
    for degree in 3 6; do
        "$cleave" generate -m "$work/alone3" -p 'a text' -n 20 --temp 0.9 -s 4 -tp $degree --json >"$work/text.json" \
            2>"$log" || fail "generate in one process failed"
        seconds_at_most 60 hosts_launch "$1" 1 "$cleave" generate -m "$work/alone3" -p 'a text' -n 20 --temp 0.9 -s 4 \
            -tp $degree --json || fail "$1: generate $2 failed"
        cmp "$work/out" "$work/text.json" || fail "$1: another text, $2"
    done
}

# Short jobs, one after another: they end, too.
expect_ends() { # mpi
    local i
    for i in 1 2 3 4 5 6 7 8; do
        seconds_at_most 30 hosts_launch "$1" 1 "$cleave" bench allreduce -tp 3 --bytes 1K ||
            fail "$1: bench allreduce, run $i, failed"
    done
}

# The first process says it; its launcher may find the others only when they end.
expect_cut() { # mpi
    local mpi=$1 out=$work/cut job waited=0
    hosts_launch "$mpi" 1 "$cleave" train "${train_options[@]}" --steps 1000000 --out "$out" -tp 3 >"$work/out" \
        2>"$log" </dev/null &
    job=$!
    until grep -q 'train [0-9]*/1000000' "$log"; do
        sleep 0.1
        waited=$((waited + 1))
        [ "$waited" -lt 300 ] || fail "$mpi: the training does not begin"
    done
    hosts_cut h3
    waited=0
    until grep -q 'missing 1 of [23]: rank 2' "$log"; do
        sleep 0.1
        waited=$((waited + 1))
        [ "$waited" -lt 700 ] || fail "$mpi: nobody misses rank 2"
    done
    hosts_mend h3
    hosts_kill h1 h2 h3
    wait "$job" 2>/dev/null
    [ ! -f "$out/model.safetensors" ] || fail "$mpi: a training that was cut off has written weights"
}

mkdir "$work"
for i in $(seq 200); do
    echo "a text of some words, number $i, and of some more words than those"
done >"$work/text"
for degree in 3 6; do
    "$cleave" train "${train_options[@]}" --steps 8 --out "$work/alone$degree" -tp $degree >/dev/null 2>"$log" ||
        fail "train in one process failed"
done
hosts_make h1 h2 h3
shaper=$(hosts_shaper)
for mpi in "${mpis[@]}"; do
    expect_same_training "$mpi" plain -tp 3
    expect_same_training "$mpi" hybrid -tp 6
    expect_same_text "$mpi" plain
    expect_ends "$mpi"
    if [ -n "$shaper" ]; then
        hosts_shape 50mbit 1ms || fail "tc does not shape by $shaper"
        expect_same_training "$mpi" shaped -tp 3
        expect_same_text "$mpi" shaped
        hosts_shape off
    fi
    expect_cut "$mpi"
done
case $shaper in
    netem) echo "links were delayed and paced by netem" ;;
    tbf) echo "links were paced by tbf; delays were not tested, as the kernel has no netem" ;;
    *) echo "links were not shaped: the kernel has neither netem nor tbf" ;;
esac
