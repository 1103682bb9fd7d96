#!/usr/bin/env bash
# The command is a user of the library: it needs libcleave.so, finds it beside itself, and holds nothing of it. Options
# that several commands take are stated once.
# usage: scripts/test_cli_linkage.sh BUILD
set -euo pipefail
build=$(cd "${1:?the folder of a build}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dynamic=$(readelf -d "$build/cleave")
case $dynamic in *NEEDED*libcleave.so*) ;; *) echo "build/cleave does not need libcleave.so"; exit 1 ;; esac
case $dynamic in
*RUNPATH*"[\$ORIGIN:\$ORIGIN/../lib"*) ;;
*) echo "build/cleave does not look for the library beside itself: $dynamic"; exit 1 ;;
esac

# functions and data by name: what the command itself has, what the library is made of, offers, and gives to the command
names() { nm "${@:2}" 2>/dev/null | awk -v kind="$1" '$2 ~ kind { sub(/@.*/, "", $3); print $3 }' |
    grep '^clv_' | sort -u; }
names '^[TDBRVtdbr]$' "$build/cleave" >"$work/own"
names '^[TDBRV]$' "$build/libcleave.a" >"$work/library"
names '^[TDBRV]$' -D "$build/libcleave.so" >"$work/offered"
nm -D "$build/cleave" | awk '$1 == "U" { print $2 }' | sed 's/@.*//' | grep '^clv_' | sort -u >"$work/taken"
for list in own library offered taken; do
    [ "$(wc -l <"$work/$list")" -gt 50 ] || { echo "a list of symbols is too short to be right: $list"; exit 1; }
done
if comm -12 "$work/own" "$work/library" | grep .; then echo "these are the library's, and in build/cleave"; exit 1; fi
if comm -23 "$work/taken" "$work/offered" | grep .; then echo "build/cleave takes these from elsewhere"; exit 1; fi

# what a header of src/cli states as an option no file states again; einsum's --out is a layout
cd "$(dirname "$0")/../src/cli"
stated() {
    tr -d '\\\n' <<<"$(cat "$@")" | grep -oE 'CLV_OPT(_[A-Z]+)?\(([A-Z]+, *)?"[^"]+"' | grep -o '"[^"]*"' | sort
}
stated options/{mesh,model,run,output,size}_options.h input/sequence_options.h evaluation/forward_run.h >"$work/groups"
[ "$(sort -u "$work/groups" | wc -l)" -gt 20 ] || { echo "too few options of groups"; exit 1; }
if uniq -d "$work/groups" | grep .; then echo "these are stated in two groups of options"; exit 1; fi
for file in */*.c options/plan_target_options.h; do
    stated "$file" | sort -u | comm -12 - "$work/groups" | sed "s|^|$file: |"
done | grep -v '^commands/command_einsum.c: "--out"$' >"$work/again" || true
if [ -s "$work/again" ]; then cat "$work/again"; echo "a group of options has these"; exit 1; fi

# another library of that name is none
mkdir "$work/alone" && cp "$build/cleave" "$work/alone"
if "$work/alone/cleave" version >/dev/null 2>&1; then echo "build/cleave runs without the library"; exit 1; fi
cp "$(readlink -f "$build/libcleave.so")" "$work/alone/$(echo "$dynamic" | grep -o 'libcleave\.so[.0-9]*')"
"$work/alone/cleave" version >/dev/null || { echo "build/cleave does not run beside the library"; exit 1; }
echo "command: takes $(wc -l <"$work/taken") functions of libcleave.so, and nothing else of it"
