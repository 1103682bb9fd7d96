#!/usr/bin/env bash
# wire_bytes.sh HOSTS TOKENS WAY FOLDER PROGRAM [ARGUMENT...]: the bytes that hosts send each other for a token that is
# decoded, less what TCP, IP and Ethernet put in front; skips (77) where namespaces cannot be made.
#
#     bench/wire_bytes.sh 2 32 openmpi|mpich MODEL build/cleave [--comm-dtype q8]
#     bench/wire_bytes.sh 2 32 dllama FOLDER dllama [--buffer-float-type q80]     # FOLDER has model.m, tokenizer.t
#
# A process on each of HOSTS hosts that are namespaces (tests/hosts/network.sh). A run of TOKENS tokens more than
# another sends so much more: what starts, loads and ends is the same in both.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/hosts/network.sh
. "$here/../tests/hosts/network.sh"
[ $# -ge 5 ] || { sed -n '2,9p' "$0"; exit 2; }
hosts_enter "$@"
n=$1 tokens=$2 way=$3 folder=$4 program=$5
shift 5

cleave_run() { # tokens: decoded twice, once to warm up
    hosts_launch "$way" 1 "$program" bench generate -m "$folder" -p 1 -n "$1" -r 1 -tp "$n" "${@:2}"
}

dllama_run() {
    local host failed=0 workers=()
    for host in "${hosts[@]:1}"; do
        on_host "$host" "$program" worker --port 9999 --nthreads 1 &
        disown "$!"
        workers+=("10.77.0.${host#h}:9999")
        until on_host "$host" ss -ltn 2>/dev/null | grep -q :9999; do sleep 0.05; done
    done
    on_host h1 "$program" inference --model "$folder/model.m" --tokenizer "$folder/tokenizer.t" --prompt a \
        --steps "$1" --nthreads 1 --workers "${workers[@]}" "${@:2}" || failed=1
    hosts_kill "${hosts[@]:1}"
    return "$failed"
}

run=cleave_run times=2
[ "$way" != dllama ] || run=dllama_run times=1
names=()
for i in $(seq "$n"); do names+=("h$i"); done
hosts_make "${names[@]}"
log=$CLV_HOSTS_INSIDE/log total=()
for more in 0 1; do
    before=$(hosts_sent)
    $run $((8 + more * tokens)) "$@" >"$log" 2>&1 </dev/null || { tail -20 "$log"; exit 1; }
    total[more]=$(($(hosts_sent) - before))
done
echo $(((total[1] - total[0]) / (times * tokens)))
