#!/usr/bin/env bash
# cleave-run with launchers and a remote shell that write down what they are asked: which mpirun it starts and how, when
# it starts again and with which hosts, when it gives up, what it does with signals, and its exit code.
# usage: scripts/test_cleave_run.sh
set -euo pipefail
run=$(cd "$(dirname "$0")" && pwd)/cleave-run
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir bin mpich both temporary
export TMPDIR=$work/temporary
export PATH=$work/bin:$PATH

# A launcher ends by the next code of the file `codes`; "run" in it runs the command, "save" makes a checkpoint and ends
# by 137.
launcher() { # path, version
    cat >"$1" <<SH
#!/bin/bash
[ "\$1" = --version ] && { echo "$2"; exit; }
echo "\$(basename "\$0") \$*" >>"$work/started"
code=\$(head -n 1 "$work/codes"); sed -i 1d "$work/codes"
case \$code in
    save) date +%N >"$work/out/checkpoints/latest"; exit 137 ;;
    wait) trap 'echo told >>"$work/started"; exit 138' USR1; trap 'echo ended >>"$work/started"; exit 1' TERM
          touch "$work/waits"; for i in {1..600}; do sleep 0.05; done ;;
    stuck) trap '' USR1; trap 'exit 1' TERM; touch "$work/waits"; for i in {1..600}; do sleep 0.05; done ;;
    stuck-*) trap '' USR1; trap "exit \${code#stuck-}" TERM; touch "$work/waits"
             for i in {1..600}; do sleep 0.05; done ;;
    '') exit 0 ;;
    *) exit "\$code" ;;
esac
SH
    chmod +x "$1"
}
launcher bin/mpirun 'mpirun (Open MPI) 4.1.4'
launcher bin/mpirun.openmpi 'mpirun (Open MPI) 4.1.4'
launcher bin/mpirun.mpich 'HYDRA build details:'
printf '#!/bin/sh\necho "$*" >>%s/asked\ntest ! -e %s/gone-$1\n' "$work" "$work" >bin/reach
chmod +x bin/reach

try() { # codes of the launcher; the exit code that is expected; arguments
    local codes=$1 expected=$2 code=0
    shift 2
    rm -rf out started asked waits
    mkdir -p out/checkpoints
    printf '%s\n' $codes >codes
    "$run" --backoff 0 "$@" >stdout 2>stderr || code=$?
    [ "$code" = "$expected" ] || { echo "cleave-run $*: exit code $code, not $expected"; cat stderr; exit 1; }
    touch started
}
starts() { # how often
    [ "$(wc -l <started)" = "$1" ] || { echo "starts are not $1:"; cat started stderr; exit 1; }
}
has() { # file, text
    grep -qF -e "$2" "$1" || { echo "$1 lacks '$2':"; cat "$1"; exit 1; }
}
lacks() {
    ! grep -qF -e "$2" "$1" || { echo "$1 has '$2':"; cat "$1"; exit 1; }
}
train=(my --out "$work/out" --resume --save-every 1)

# how it is started
try 0 0 -np 3 "${train[@]}"
starts 1
has started "mpirun --bind-to none --oversubscribe -np 3 my --out"
try 0 0 -np 3 --mpi mpich --mpi-args '-iface eth0' "${train[@]}"
has started "mpirun.mpich -iface eth0 -np 3 my"
try 0 0 -np 5 --hosts h1,h2 --rsh reach "${train[@]}"
has started "--mca plm_rsh_agent reach --host h1:2,h2:3 -np 5 my"
try 0 0 -np 5 --mpi mpich --hosts h1:4,h2:2 --rsh reach "${train[@]}"
has started "-launcher ssh -launcher-exec reach -hosts h1:4,h2:1 -np 5 my"
has asked "h2 true"

# again, until it ends well; with --resume once
try '137 1 0' 0 -np 2 "${train[@]}"
starts 3
[ "$(grep -c -- '--resume.*--resume' started)" = 0 ] || { echo "--resume twice"; exit 1; }
try '137 137 137 137 137' 137 -np 2 --restarts 3 "${train[@]}"
starts 4
has stderr "the 4th time without a new checkpoint since the start; giving up"
try 'save save save save save 0' 0 -np 2 --restarts 1 "${train[@]}"
starts 6
try '9 9' 9 -np 2 --restarts 0 "${train[@]}"
starts 1

# what is not tried again
try 2 2 -np 2 "${train[@]}"
starts 1
try 143 143 -np 2 "${train[@]}"
starts 1
try '1 0' 1 -np 2 my --out "$work/out"
starts 1

# a host is gone, and comes back
touch gone-h2
try 'save 0' 0 -np 4 --hosts h1,h2,h3 --rsh reach "${train[@]}"
has started "--host h1:1,h3:2 -np 3 my"
has stderr "not reached: h2; 3 of 4 processes are left"
touch gone-h1 gone-h3
try '' 1 -np 3 --hosts h1,h2,h3 --rsh reach --restarts 1 "${train[@]}"
starts 0
has stderr "no host answers"
rm gone-*

# a host goes while the launcher waits for it
try_in_background() { # codes; arguments
    rm -rf out started waits
    mkdir -p out/checkpoints
    printf '%s\n' $1 >codes
    shift
    "$run" --backoff 0 "$@" >stdout 2>stderr &
    pid=$!
    for _ in {1..200}; do [ -e waits ] && return; sleep 0.05; done
    echo "it did not start"; cat stderr; exit 1
}
ends() { # code
    local code=0
    wait "$pid" || code=$?
    [ "$code" = "$1" ] || { echo "exit code $code, not $1"; cat started stderr; exit 1; }
}
try_in_background 'stuck 0' -np 2 --hosts h1,h2 --rsh reach --watch 1 "${train[@]}"
touch gone-h1
ends 0
has stderr "h1 does not answer any more; ending the job"
has started "--host h2:1 -np 1 my"
rm gone-*

# the same where a launcher says that all is well, or the command that it was told to end
for code in 0 143; do
    try_in_background "stuck-$code 0" -np 2 --hosts h1,h2 --rsh reach --watch 1 "${train[@]}"
    touch gone-h1
    ends 0
    starts 2
    rm gone-*
done
try_in_background stuck-0 -np 2 --hosts h1,h2 --rsh reach --watch 1 my
touch gone-h1
ends 1
rm gone-*

# signals: the first is told, the second ends
try_in_background wait -np 2 "${train[@]}"
kill -TERM "$pid"
ends 143
has started told
lacks started ended
try_in_background stuck -np 2 "${train[@]}"
kill -HUP "$pid"
sleep 0.3
kill -TERM "$pid"
ends 129
starts 1
try_in_background stuck-0 -np 2 my
kill -HUP "$pid"
sleep 0.3
kill -TERM "$pid"
ends 129
# killed outright, it takes its launcher along
if setpriv --pdeathsig TERM true 2>/dev/null; then
    try_in_background wait -np 2 "${train[@]}"
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
    for _ in {1..40}; do grep -q ended started && break; sleep 0.05; done
    has started ended
    rm -rf "${TMPDIR:?}"/*
fi
[ -z "$(ls "$TMPDIR")" ] || { echo "left behind: $(ls "$TMPDIR")"; exit 1; }

# usage
for wrong in '-np x my' '-np 0 my' '-np' '' '--mpi smoke -np 2 my' '--hosts h1,h2,h3 -np 2 my' '--pigeons my' \
    '--hosts h1:1,h2:1 -np 4 my' '--hosts h1,-x -np 2 my' '--restarts 1000000000000000000000 my'; do
    # shellcheck disable=SC2086 # words
    try '' 2 $wrong
    [ "$(wc -l <stderr)" = 1 ] || { echo "'$wrong': $(cat stderr)"; exit 1; }
done
try '' 2 --hosts '' -np 2 my
has stderr "--hosts names none"
"$run" --help | grep -q -- --hosts
echo "cleave-run: ok"
