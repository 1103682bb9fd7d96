#!/usr/bin/env bash
# check_abi.py passes this tree against what was frozen of its major version, and finds each kind of breach in small
# headers made for it.
# usage: scripts/test_abi.sh BUILD
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/..
build=${1:?the folder of a build}
version=$(sed -n 's/^project(cleave VERSION \([0-9]*\)\..*/\1/p' "$root/CMakeLists.txt")
released=()
[ "$version" -ge 1 ] && released=(--released)
for frozen in "$root"/tests/abi/"$version".*; do
    echo "${frozen##*/}:"
    "$here/check_abi.py" "$frozen/include" "$root/include" --library "$build/libcleave.so" --sources "$root/src" \
        "${released[@]}"
done

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/old/cleave" "$tree/new/cleave" "$tree/src"
expect() { # text that the check must print ("": it passes), headers then and now, options
    printf '#define CLV_API\n#include <stddef.h>\n%s\n' "$2" >"$tree/old/cleave/cleave.h"
    printf '#define CLV_API\n#include <stddef.h>\n%s\n' "$3" >"$tree/new/cleave/cleave.h"
    if out=$("$here/check_abi.py" "$tree/old" "$tree/new" --sources "$tree/src" "${@:4}"); then
        [ -z "$1" ] || { echo "not refused: $2 -> $3"; exit 1; }
        return
    fi
    case $out in
    *"$1"*) [ -n "$1" ] || { echo "refused: $out"; exit 1; } ;;
    *) echo "expected '$1', got '$out'"; exit 1 ;;
    esac
}
options='typedef struct clv_options { size_t size; int a; } clv_options;'
expect '' "$options" 'typedef struct clv_options { size_t size; int a; long b; } clv_options;'
expect 'clv_options.b is new and lies at 12' "$options" \
    'typedef struct clv_options { size_t size; int a; int b; } clv_options;'
expect 'clv_options.a was int at 8, is int at 16' "$options" \
    'typedef struct clv_options { size_t size; long b; int a; } clv_options;'
expect 'clv_options.a was int at 8, is float at 8' "$options" \
    'typedef struct clv_options { size_t size; float a; } clv_options;'
expect 'clv_options.a is gone' "$options" 'typedef struct clv_options { size_t size; } clv_options;'
expect 'struct clv_options is gone' "$options" 'typedef struct clv_others { size_t size; } clv_others;'
expect 'ended at offsetof(clv_options, b)' "$options" \
    'typedef struct clv_options { size_t size; int a; long b; } clv_options;' --released
echo 'clv_take_options(&o, sizeof o, offsetof(clv_options, b), options, call, err);' >"$tree/src/x.c"
expect '' "$options" 'typedef struct clv_options { size_t size; int a; long b; } clv_options;' --released
expect 'clv_plain had 4 bytes, has 8' 'typedef struct clv_plain { int a; } clv_plain;' \
    'typedef struct clv_plain { int a; int b; } clv_plain;'
roomy='typedef struct clv_roomy { int a; int reserved[3]; } clv_roomy;'
expect '' "$roomy" 'typedef struct clv_roomy { int a; int b; int reserved[2]; } clv_roomy;'
expect 'clv_roomy had 16 bytes, has 20' "$roomy" \
    'typedef struct clv_roomy { int a; int b; int reserved[3]; } clv_roomy;'
expect 'clv_roomy.b is new and lies at 0' "$roomy" \
    'typedef struct clv_roomy { int b; int a; int reserved[2]; } clv_roomy;'
expect 'CLV_B was 1, is 2' 'enum { CLV_A, CLV_B };' 'enum { CLV_A, CLV_C, CLV_B };'
expect 'CLV_B was 1, is gone' 'enum { CLV_A, CLV_B };' 'enum { CLV_A };'
expect '' 'enum { CLV_A, CLV_A_COUNT };' 'enum { CLV_A, CLV_B, CLV_A_COUNT };'
expect 'clv_f is no longer declared' 'CLV_API int clv_f(int a);' 'CLV_API int clv_g(int a);'
expect "clv_f was 'CLV_API int clv_f(int a);', is 'CLV_API int clv_f(long a);'" 'CLV_API int clv_f(int a);' \
    'CLV_API int clv_f(long a);'
expect '' 'CLV_API int clv_f(int a);' 'CLV_API int clv_f(int other);'
expect 'clv_call was int (void *), is int (void *, int)' 'typedef int clv_call(void *arg);' \
    'typedef int clv_call(void *arg, int a);'
echo "abi: as it was"
