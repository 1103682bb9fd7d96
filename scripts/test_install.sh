#!/usr/bin/env bash
# Installs a build into a fresh prefix and builds a small program against it by pkg-config and by CMake, with the
# shared and with the static library.
# usage: scripts/test_install.sh BUILD_DIR
set -euo pipefail
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

cmake --install "$build" --prefix "$prefix" >/dev/null
pc=$(find "$prefix" -name cleave.pc)
[ -n "$pc" ] || { echo "cleave.pc was not installed"; exit 1; }
libdir=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH=$libdir/pkgconfig

cat >"$work/user.c" <<'C'
#include <stdio.h>
#include <cleave/rng.h>
#include <cleave/status.h>
int main(void)
{
    float x[3];
    clv_random_uniform(x, clv_key_seed(0), 0, 3, 0.0f, 1.0f);
    printf("%s\n", x[0] >= 0 && x[0] < 1 ? clv_status_name(CLV_OK) : "out of range");
    return 0;
}
C
check() { # what, command...
    local what=$1 out
    shift
    out=$("$@") && [ "$out" = ok ] || { echo "$what: expected ok, got '${out:-}'"; exit 1; }
    echo "$what: ok"
}
cc=${CC:-cc}
$cc "$work/user.c" -o "$work/by_shared" $(pkg-config --cflags --libs cleave) -Wl,-rpath,"$libdir"
check "pkg-config, shared" "$work/by_shared"
mkdir "$work/static" && cp "$libdir/libcleave.a" "$work/static"
$cc "$work/user.c" -o "$work/by_static" $(pkg-config --cflags cleave) -L"$work/static" \
    $(pkg-config --static --libs-only-l --libs-only-other cleave)
check "pkg-config, static" "$work/by_static"

cat >"$work/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(cleave 0.1 REQUIRED)
foreach(kind shared static)
    add_executable(user_${kind} user.c)
    target_link_libraries(user_${kind} PRIVATE cleave::cleave_${kind})
endforeach()
C
cmake -S "$work" -B "$work/out" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
    cmake --build "$work/out" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
check "CMake, shared" "$work/out/user_shared"
check "CMake, static" "$work/out/user_static"
if [ -x "$build/cleave" ]; then
    "$prefix/bin/cleave" version >/dev/null || { echo "the installed program does not run"; exit 1; }
    "$prefix/bin/cleave-run" --help >/dev/null || { echo "the installed cleave-run does not run"; exit 1; }
    for file in man/man1/cleave.1 man/man1/cleave-bench-gemm.1 bash-completion/completions/cleave \
        zsh/site-functions/_cleave \
        fish/vendor_completions.d/cleave.fish; do
        [ -s "$prefix/share/$file" ] || { echo "share/$file was not installed"; exit 1; }
    done
fi
