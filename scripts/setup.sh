#!/usr/bin/env bash
# Installs what cleave is built from and is missing here, through apt. With nothing missing it does nothing, quickly.
# usage: scripts/setup.sh build                   what the library and the command need, as `make run` does
#        scripts/setup.sh [lint|tidy|fuzz|docs]   what tests need, and what `make lint`, `make tidy`, ... needs besides
set -euo pipefail

missing=()
need_command() { command -v "$1" >/dev/null || missing+=("$2"); }
preprocess() { "${CC:-cc}" -DPCRE2_CODE_UNIT_WIDTH=8 -E -o /dev/null -; } # pcre2.h asks for the width
need_header() { # header, Debian package: asks the compiler, so that a library from elsewhere counts too
    printf '#include <%s>\n' "$1" | preprocess 2>/dev/null || missing+=("$2")
}
# cmocka.h includes nothing itself
all_headers='#include <stdarg.h>\n#include <stddef.h>\n#include <setjmp.h>\n#include <stdint.h>\n#include <cmocka.h>\n'
all_headers+='#include <dnnl.h>\n#include <hwloc.h>\n#include <jansson.h>\n#include <pcre2.h>\n'
all_headers+='#include <utf8proc.h>\n#include <xxhash.h>\n#include <zlib.h>\n'

need_command "${CC:-cc}" gcc
need_command cmake cmake
need_command ninja ninja-build
if ! printf "$all_headers" | preprocess 2>/dev/null; then
    need_header stdlib.h libc6-dev
    need_header dnnl.h libdnnl-dev
    need_header hwloc.h libhwloc-dev
    need_header cmocka.h libcmocka-dev
    need_header jansson.h libjansson-dev
    need_header pcre2.h libpcre2-dev
    need_header utf8proc.h libutf8proc-dev
    need_header xxhash.h libxxhash-dev
    need_header zlib.h zlib1g-dev
fi
if [ "${1:-}" != build ]; then
    need_command c++ g++
    need_command pkg-config pkg-config
    # for the Python package and its tests
    need_command python3 python3
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' 2>/dev/null || missing+=(python3-dev)
    # both MPIs, for their modules and tests; a build does without either
    need_command mpicc.openmpi libopenmpi-dev
    need_command mpirun.openmpi openmpi-bin
    need_command mpicc.mpich libmpich-dev
    need_command mpirun.mpich mpich
fi
case "${1:-}" in
lint)
    need_command clang-format clang-format
    need_command clang clang
    need_command ccache ccache ;;
fuzz)
    need_command clang clang
    ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer* >/dev/null 2>&1 || missing+=(libclang-rt-14-dev) ;;
docs) need_command doxygen doxygen ;;
tidy) need_command clang-format clang-format; need_command clang-tidy clang-tidy ;;
esac
[ ${#missing[@]} -eq 0 ] && exit 0

echo "setup: these Debian packages are missing: ${missing[*]}"
if ! command -v apt-get >/dev/null; then
    echo "setup: there is no apt-get here; install the equivalents of those packages and run this again" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: not root and no sudo; run: apt-get install ${missing[*]}" >&2
        exit 1
    }
    as_root=(sudo)
fi
echo "setup: installing them with ${as_root[*]:+sudo }apt-get (this is done once)"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq </dev/null
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
# A build that was configured before looks for what is there now.
cd "$(dirname "$0")/.."
[ ! -f build/CMakeCache.txt ] || cmake -U CMAKE_CXX_COMPILER build >/dev/null
echo "setup: done"
