#!/usr/bin/env bash
# check_layers.sh passes this tree, and finds each kind of breach in a small tree made for it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/check_layers.sh"

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
expect() { # text that the check must print, file, its content
    rm -rf "$tree/src" "$tree/include"
    mkdir -p "$tree/src" "$tree/include/cleave" "$(dirname "$tree/$2")"
    printf "$3\n" >"$tree/$2"
    if out=$("$here/check_layers.sh" "$tree"); then echo "not refused: $2: $3"; exit 1; fi
    case $out in *"$1"*) ;; *) echo "expected '$1', got '$out'"; exit 1 ;; esac
}
expect 'base includes graph/graph.h' src/base/x.c '#include "graph/graph.h"'
expect 'graph includes ops/op.h' src/graph/x.c '#include "base/arena.h"\n  #  include "ops/op.h"'
expect 'tensor includes cleave/graph.h' include/cleave/mesh.h '#include "cleave/graph.h"'
expect 'dnnl.h may be included only from' src/ops/x.c '#include <dnnl.h>'
expect 'mpi.h may be included only from' src/comm/threads.c '#include <mpi.h>'
expect 'belongs to no layer' src/utils/x.c 'int x;'
expect 'belongs to no layer' include/cleave/odd.h 'int x;'
echo "layers: as they should be"
