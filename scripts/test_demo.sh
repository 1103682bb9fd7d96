#!/usr/bin/env bash
# demo.sh writes in a folder of its own, does it again over what it made, and touches nothing that it did not make. A
# stand-in for the program takes the place of training. Then what README.md shows of it is what a step of it prints. And
# make run installs and builds what the command needs, and no more.
# usage: scripts/test_demo.sh BUILD
set -euo pipefail
build=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/bin"
cat >"$work/bin/cleave" <<'C'
#!/bin/sh
[ "$1" = train ] || exit 0
while [ "$1" != --out ]; do shift; done
mkdir "$2" && echo weights >"$2/model.safetensors"
C
chmod +x "$work/bin/cleave"
run() { CLV_BUILD_DIR=$work/bin CLV_RUN_OUT=$1 "$here/demo.sh" >"$work/log" 2>&1; }
refused() { # what stands there, its place
    if run "$2"; then echo "$1 was not refused"; exit 1; fi
    grep -q "did not make it" "$work/log" || { echo "$1: no reason is given:"; cat "$work/log"; exit 1; }
}

run "$work/demo" || { cat "$work/log"; exit 1; }
echo mine >"$work/demo/notes"
run "$work/demo" || { echo "not twice:"; cat "$work/log"; exit 1; }
[ "$(cat "$work/demo/notes")" = mine ] || { echo "a file beside the model is gone"; exit 1; }
[ -f "$work/demo/model/model.safetensors" ] || { echo "no checkpoint was written"; exit 1; }

mkdir -p "$work/first/model"
echo mine >"$work/first/model/model.safetensors"
refused "a folder of the user's" "$work/first"
[ "$(cat "$work/first/model/model.safetensors")" = mine ] || { echo "a model of the user's is gone"; exit 1; }
ln -s demo "$work/link"
refused "a link" "$work/link"
if grep -n 'runs/first' "$here/demo.sh"; then echo "demo.sh uses the name that --help gives to users"; exit 1; fi

cd "$here/.."
shown=$(sed -n "/^## A minute/,/^\*\*What/{/^\`\`\`/,/^\`\`\`/{/^\`\`\`/!p}}" README.md)
[ -n "$shown" ] || { echo "README.md shows nothing of make run"; exit 1; }
CLV_BUILD_DIR=$build CLV_RUN_STEPS=1 CLV_RUN_OUT=$work/real "$here/demo.sh" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
[[ $(<"$work/log") == *"$shown"* ]] || {
    echo "README.md shows other collectives than make run:"
    cat "$work/log"
    exit 1
}
parameters=$(sed -n 's/^training \(.* M parameters\).*/\1/p' "$work/log")
grep -q "[^.0-9]$parameters" README.md || { echo "README.md does not say $parameters"; exit 1; }

would=$(make -n -o build/CMakeCache.txt run JOBS=2)
[[ $would == *"scripts/setup.sh build"*"cmake --build build -j 2 --target cleave_cli"*"scripts/demo.sh"* ]] || {
    echo "make run would do something else:"
    echo "$would"
    exit 1
}
mkdir "$work/tools"
for tool in bash env dirname cmake ninja "${CC:-cc}"; do
    ln -s "$(command -v "${tool%% *}" || echo /nowhere)" "$work/tools/$(basename "${tool%% *}")"
done
if command -v ninja >/dev/null && ! PATH=$work/tools "$here/setup.sh" build >"$work/log" 2>&1; then
    cat "$work/log"
    echo "make run installs what the command does not need"
    exit 1
fi
