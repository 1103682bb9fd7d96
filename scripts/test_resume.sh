#!/usr/bin/env bash
# Runs of train that are broken, by signals, by kill -9 at random moments, by the death of one process of a job under
# cleave-run, and of its host, end with the losses and the weights of the run that was never broken, bit for bit.
# usage: scripts/test_resume.sh BUILD_DIR [MPI...]; CLV_KILLS: how many times a run is killed (20; 200 with
# CLV_SWEEP=all); CLV_SEED
set -euo pipefail
build=$(cd "$1" && pwd)
shift
run=$(cd "$(dirname "$0")" && pwd)/cleave-run
work=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) # in memory flushing costs nothing
finish() {
    jobs -p | xargs -r kill -KILL 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
cd "$work"
export PATH=$build:$PATH
seed=${CLV_SEED:-$RANDOM}
RANDOM=$seed
echo "seed $seed"

for i in {1..9}; do echo "the layout $i of a tensor says where each part lives"; done >text
# A run that is to be broken is not over before that: 300 steps are, in a quarter of a second.
kills=${CLV_KILLS:-$([ "${CLV_SWEEP:-}" = all ] && echo 200 || echo 20)}
long=$((kills < 20 ? 1000 : 50 * kills))
train=(cleave train --text text --layers 1 --hidden 24 --heads 6 --ffn 32 --seq 16 --batch 3 -tp 3)

fail() {
    echo "$*"
    tail -n 20 said out 2>/dev/null || true
    exit 1
}
lines() { # folder
    cat "$1"/metrics*jsonl 2>/dev/null | wc -l
}
wait_for() { # what it is; then a command
    local what=$1
    shift
    for _ in {1..1200}; do
        "$@" && return
        sleep 0.02
    done
    fail "no $what"
}
has_lines() { # folder, how many
    [ "$(lines "$1")" -ge "$2" ]
}
same() { # folder: as `whole`
    cmp -s "$1/model.safetensors" whole/model.safetensors || fail "$1: other weights"
    [ "$(cut -d, -f1-3 "$1/metrics.jsonl")" = "$(cut -d, -f1-3 whole/metrics.jsonl)" ] || fail "$1: other losses"
    [ ! -e "$1/metrics.unfinished.jsonl" ] || fail "$1: unfinished"
    ! find "$1" -name '*tmp*' | grep . || fail "$1: something is left"
}
losses_in() { # summary
    grep -o '"[a-z_]*loss": [^,]*' "$1"
}
newest() { # folder
    (cd "$1/checkpoints" 2>/dev/null && printf '%s\n' step-*[0-9] | grep -v '[*.]' | tail -n 1) || true
}

"${train[@]}" --steps $long --out whole --json >whole.json 2>said || fail "the whole run"

# ---- signals: saved, and gone on with ----
for signal in INT TERM HUP USR1; do
    rm -rf broken
    # a shell leaves SIGINT ignored in what it starts behind its back
    (trap - INT; exec env --default-signal=INT "${train[@]}" --steps $long --out broken) >out 2>said &
    pid=$!
    wait_for lines has_lines broken 5
    kill -$signal $pid
    code=0
    wait $pid || code=$?
    [ $code = $((128 + $(kill -l $signal))) ] || fail "SIG$signal: exit code $code"
    grep -q "SIG$signal: saved after step [0-9]* of $long in broken; --resume continues from there" said ||
        fail "SIG$signal: not said"
    [ ! -e broken/model.safetensors ] || fail "SIG$signal: it is not over"
    "${train[@]}" --steps $long --out broken --resume --json >broken.json 2>said || fail "--resume after SIG$signal"
    grep -q "resuming after step" said || fail "not said that it goes on"
    same broken
    [ "$(losses_in broken.json)" = "$(losses_in whole.json)" ] || fail "another summary: $(cat broken.json)"
done

# a second one ends it at once, though a step takes long
cleave train --text text --layers 8 --hidden 768 --heads 8 --seq 256 --batch 8 --steps 9 --out slow >out 2>said &
pid=$!
wait_for start grep -q training said
sleep 0.3
kill -TERM $pid
sleep 0.4
kill -TERM $pid 2>/dev/null || true # the first may have been enough
code=0
wait $pid || code=$?
[ $code = 143 ] || fail "two signals: exit code $code"
! grep -q saved said || echo "note: the first signal was enough"

# ---- kill -9 at random moments, in the middle of saves too ----
rm -rf broken
last='' left='' in_saves=0
for ((i = 0; i < kills; i++)); do
    rm -f said # of the last one
    "${train[@]}" --steps $long --out broken --save-every 1 --resume >out 2>said &
    pid=$!
    wait_for start grep -qs training said
    # every other one in the middle of steps and saves, which may be long after the start
    steps=${last#step-}
    ((i % 2 == 0)) || wait_for step has_lines broken $((10#${steps:-0} + 1))
    sleep "0.$(printf %03d $((RANDOM % 100)))"
    kill -KILL $pid 2>/dev/null || fail "kill $i: it has ended"
    wait $pid 2>/dev/null || true
    leaves=$(cd broken/checkpoints 2>/dev/null && echo *.tmp-*) || true
    [ "$leaves" = "$left" ] || [ "${leaves:-*.tmp-*}" = '*.tmp-*' ] || in_saves=$((in_saves + 1))
    left=$leaves
    now=$(newest broken)
    [[ ! $now < $last ]] || fail "kill $i: $now after $last"
    ! grep -q damaged said || fail "kill $i: $(cat said)"
    last=$now
done
[ $in_saves -gt 0 ] || [ "$kills" -lt 100 ] || fail "none of $kills kills was during a save"
"${train[@]}" --steps $long --out broken --save-every 400 --resume >out 2>said || fail "--resume after kills"
same broken
echo "killed $kills times, $in_saves times during a save, the last time after ${last#step-}"

# ---- one of two processes is killed under cleave-run ----
cat >wrap <<'SH'
#!/bin/sh
echo $$ >"pid.$OMPI_COMM_WORLD_RANK$PMI_RANK"
exec "$@"
SH
chmod +x wrap
# stands in for ssh: both hosts are this one, until h2 is gone
cat >reach <<SH
#!/bin/bash
while [[ \$1 = -* ]]; do shift; done
[ "\$1" = h2 ] && [ -e "$work/gone" ] && exit 255
shift
cd "$work" && exec sh -c "\$*"
SH
chmod +x reach
for mpi in "$@"; do
    for np in 2 3; do
        rm -rf broken pid.*
        "$run" -np $np --mpi "$mpi" --backoff 0 ./wrap "${train[@]}" --steps $long --out broken --save-every 10 \
            --resume >out 2>said &
        pid=$!
        wait_for checkpoint has_lines broken 25
        victim=$(cat pid.$((np - 1)))
        kill -KILL "$victim"
        wait $pid || fail "$mpi, $np: exit code $?"
        [ "$victim" != "$(cat pid.$((np - 1)))" ] || fail "$mpi, $np: it was not started again"
        grep -q "cleave-run: ended with exit code .*; starting again from step-0000" said || fail "$mpi: not said"
        grep -q "resuming after step" said || fail "$mpi: it began anew"
        same broken
    done
    # each process writes its part while steps go on: the same files as by one that waits
    for how in '' --save-wait; do
        rm -rf "saved$how"
        "$run" -np 2 --mpi "$mpi" --restarts 0 "${train[@]}" --steps 6 --save-every 1 --keep-last 9 $how \
            --out "saved$how" >out 2>said || fail "$mpi: --save-every 1 $how"
    done
    diff -r saved/checkpoints saved--save-wait/checkpoints >out || fail "$mpi: other checkpoints than with --save-wait"
    # one of two is killed at random moments, in the middle of saves too
    rm -rf broken
    last=''
    for ((i = 0; i < (kills < 100 ? 3 : kills / 5); i++)); do
        rm -f pid.* said # what the last one said starts nothing
        steps=${last#step-}
        "$run" -np 2 --mpi "$mpi" --restarts 0 ./wrap "${train[@]}" --steps $long --out broken --save-every 1 --resume \
            >out 2>said &
        pid=$!
        wait_for start grep -qs '^training' said
        wait_for step has_lines broken $((10#${steps:-0} + 1))
        sleep "0.$(printf %03d $((RANDOM % 100)))"
        kill -KILL "$(cat pid.$((RANDOM % 2)))" 2>/dev/null || fail "$mpi, kill $i: it has ended"
        ! wait $pid 2>/dev/null || fail "$mpi, kill $i: exit code 0"
        now=$(newest broken)
        [[ ! $now < $last ]] || fail "$mpi, kill $i: $now after $last"
        ! grep -q damaged said || fail "$mpi, kill $i: damaged"
        last=$now
    done
    "${train[@]}" --steps $long --out broken --save-every 400 --resume >out 2>said || fail "$mpi: --resume after kills"
    same broken
    # told to leave, and gone on with by another number of processes
    rm -rf broken
    "$run" -np 3 --mpi "$mpi" "${train[@]}" --steps $long --out broken --save-every 50 >out 2>said &
    pid=$!
    wait_for lines has_lines broken 5
    kill -TERM $pid
    code=0
    wait $pid || code=$?
    [ $code = 143 ] || fail "$mpi: SIGTERM to cleave-run: exit code $code"
    grep -q "saved after step" said || fail "$mpi: not saved"
    "$run" -np 2 --mpi "$mpi" "${train[@]}" --steps $long --out broken --resume >out 2>said || fail "$mpi: on 2"
    same broken
    # a host is gone with its process: the other one goes on with all ranks
    rm -rf broken pid.* gone
    "$run" -np 2 --mpi "$mpi" --hosts h1,h2 --rsh "$work/reach" --backoff 0 ./wrap "${train[@]}" --steps $long \
        --out broken --save-every 10 --resume >out 2>said &
    pid=$!
    wait_for lines has_lines broken 25
    touch gone
    kill -KILL "$(cat pid.1)"
    wait $pid || fail "$mpi, a host is gone: exit code $?"
    grep -q "cleave-run: not reached: h2; 1 of 2 processes are left" said || fail "$mpi: not said that a host is gone"
    same broken
    echo "$mpi: ok"
done
