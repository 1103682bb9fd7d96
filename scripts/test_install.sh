#!/usr/bin/env bash
# Installs a build into a fresh prefix, whose name has a blank, and builds a small program against it by pkg-config and
# by CMake, with the shared and with the static library; then removes it again, and nothing else. What a project gets
# that has this one inside is configured, and not built.
# usage: scripts/test_install.sh BUILD_DIR
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix="$work/a prefix"
fail() { echo "$*"; exit 1; }

# make hands on the prefix as it is.
mkdir "$work/bin"
printf '#!/bin/sh\nfor word; do echo "<$word>"; done\n' >"$work/bin/cmake"
chmod +x "$work/bin/cmake"
for target in install install-debug; do
    PATH=$work/bin:$PATH make -s -C "$root" -o build/CMakeCache.txt "$target" PREFIX="/a b'c" >"$work/log"
    grep -qx "</a b'c>" "$work/log" || { cat "$work/log"; fail "make $target: another prefix"; }
done

cmake --install "$build" --prefix "$prefix" >/dev/null
pc=$(find "$prefix" -name cleave.pc)
[ -n "$pc" ] || fail "cleave.pc was not installed"
libdir=$(dirname "$(dirname "$pc")")
if grep -q 'CMAKE_BUILD_TYPE:.*=Release$' "$build/CMakeCache.txt"; then
    for file in "$libdir/libcleave.so" "$libdir/libcleave.a" "$prefix"/bin/cleave; do
        [ ! -f "$file" ] || [[ $(readelf -SW "$file") != *.debug_* ]] || fail "$file has debug information"
    done
fi
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
    out=$("$@") && [ "$out" = ok ] || fail "$what: expected ok, got '${out:-}'"
    echo "$what: ok"
}
cc=${CC:-cc}
# pkg-config writes a blank as a shell reads it.
eval "$cc '$work/user.c' -o '$work/by_shared' $(pkg-config --cflags --libs cleave) -Wl,-rpath,'$libdir'"
check "pkg-config, shared" "$work/by_shared"
mkdir "$work/static" && cp "$libdir/libcleave.a" "$work/static"
eval "$cc '$work/user.c' -o '$work/by_static' $(pkg-config --cflags cleave) -L'$work/static' \
    $(pkg-config --static --libs-only-l --libs-only-other cleave)"
check "pkg-config, static" "$work/by_static"

# By CMake: the line that everybody types, both libraries by name, their components, the examples; and in C++ alone.
mkdir "$work/cxx"
cp "$work/user.c" "$work/cxx/user.cpp"
cat >"$work/CMakeLists.txt" <<C
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(cleave 0.1 REQUIRED COMPONENTS shared static)
find_package(cleave COMPONENTS device QUIET)
if(cleave_FOUND)
    message(FATAL_ERROR "there is no component device")
endif()
foreach(kind cleave cleave_shared cleave_static)
    add_executable(user_\${kind} user.c)
    target_link_libraries(user_\${kind} PRIVATE cleave::\${kind})
endforeach()
foreach(kind cleave cleave_static)
    add_executable(example_\${kind} "$root/examples/plan_70b.c")
    target_link_libraries(example_\${kind} PRIVATE cleave::\${kind} m)
endforeach()
C
cat >"$work/cxx/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.22)
project(user CXX)
find_package(cleave REQUIRED)
foreach(kind cleave cleave_static)
    add_executable(user_${kind} user.cpp)
    target_link_libraries(user_${kind} PRIVATE cleave::${kind})
endforeach()
C
by_cmake() { # the folder of a project
    cmake -S "$1" -B "$1/out" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
        cmake --build "$1/out" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}
by_cmake "$work"
for kind in cleave cleave_shared cleave_static; do
    check "CMake, cleave::$kind" "$work/out/user_$kind"
done
if command -v c++ >/dev/null; then
    by_cmake "$work/cxx"
    check "CMake in C++, shared" "$work/cxx/out/user_cleave"
    check "CMake in C++, static" "$work/cxx/out/user_cleave_static"
fi

# A project that has this one inside: the same names, and none of its tests and examples.
mkdir "$work/outer"
cp "$work/user.c" "$work/outer"
cat >"$work/outer/CMakeLists.txt" <<C
cmake_minimum_required(VERSION 3.22)
project(outer C)
add_subdirectory("$root" cleave)
foreach(kind cleave cleave_shared cleave_static)
    add_executable(user_\${kind} user.c)
    target_link_libraries(user_\${kind} PRIVATE cleave::\${kind})
endforeach()
C
cmake -S "$work/outer" -B "$work/outer/out" -G 'Unix Makefiles' >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
links=$work/outer/out/CMakeFiles
grep -q libcleave.so "$links/user_cleave.dir/link.txt" || fail "cleave::cleave is not the shared one"
grep -q libdnnl "$links/user_cleave_static.dir/link.txt" || fail "cleave::cleave_static comes without what it calls"
[ -z "$(find "$work/outer/out" -name 'example_*' -o -name 'test_*')" ] || fail "others get our examples and tests"
echo "add_subdirectory: ok"

if [ -x "$build/cleave" ]; then
    "$prefix/bin/cleave" version >/dev/null || fail "the installed program does not run"
    "$prefix/bin/cleave-run" --help >/dev/null || fail "the installed cleave-run does not run"
    for file in man/man1/cleave.1 man/man1/cleave-bench-gemm.1 bash-completion/completions/cleave \
        zsh/site-functions/_cleave \
        fish/vendor_completions.d/cleave.fish; do
        [ -s "$prefix/share/$file" ] || fail "share/$file was not installed"
    done
fi

# Removed: everything, and nothing else. A package is laid below DESTDIR, and removed from there.
echo mine >"$prefix/include/cleave/mine"
"$root/scripts/uninstall.sh" "$prefix" >/dev/null
[ "$(cd "$prefix" && find . ! -type d)" = ./include/cleave/mine ] || { find "$prefix"; fail "uninstall left this"; }
[ "$(find "$prefix" -name cleave)" = "$prefix/include/cleave" ] || { find "$prefix"; fail "uninstall left folders"; }
[ -d "$prefix/bin" ] || fail "uninstall removed a folder that is not cleave's"
if "$root/scripts/uninstall.sh" "$prefix" >/dev/null 2>&1; then fail "uninstalled twice"; fi
DESTDIR="$work/a package" cmake --install "$build" --prefix /usr >/dev/null
[ -f "$work/a package/usr/include/cleave/cleave.h" ] || fail "DESTDIR is not heeded"
DESTDIR="$work/a package" "$root/scripts/uninstall.sh" /usr >/dev/null
[ -z "$(find "$work/a package" ! -type d)" ] || { find "$work/a package"; fail "uninstall left this below DESTDIR"; }
(cd "$work" && cmake --install "$build" --prefix here >/dev/null && "$root/scripts/uninstall.sh" here >/dev/null)
[ -z "$(find "$work/here" ! -type d)" ] || { find "$work/here"; fail "uninstall left this below a relative prefix"; }
mkdir -p "$work/bad/share/cleave"
echo "../mine" >"$work/bad/share/cleave/installed"
echo mine >"$work/mine"
if "$root/scripts/uninstall.sh" "$work/bad" 2>/dev/null || [ ! -f "$work/mine" ]; then
    fail "uninstall goes outside of the prefix"
fi
echo "uninstall: ok"
