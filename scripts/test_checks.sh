#!/usr/bin/env bash
# check_layers.sh, check_duplicates.py and check_references.py pass this tree, and check_symbol_layers.sh what was built
# of it; all of them find each kind of breach in small ones made for it.
# usage: scripts/test_checks.sh BUILD
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/check_layers.sh"
"$here/check_duplicates.py"
"$here/check_references.py"
build=${1:?the folder of a build}
"$here/check_symbol_layers.sh" "$build/CMakeFiles/clv_objects.dir/src" "$here/../src"
"$here/check_symbol_layers.sh" "$build/CMakeFiles/clv_cli.dir/src" "$here/../src"

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
expect 'graph includes ops/op.h' src/graph/x.c '#include "base/memory/arena.h"\n  #  include "ops/op.h"'
expect 'tensor includes cleave/graph.h' include/cleave/mesh.h '#include "cleave/graph.h"'
expect 'dnnl.h may be included only from' src/ops/x.c '#include <dnnl.h>'
expect 'mpi.h may be included only from' src/comm/world/world.c '#include <mpi.h>'
expect 'cli includes base/threads/wait.h, which is private' src/cli/x.c \
    '#include "cleave/mesh.h"\n#include "cli/x.h"\n#include "base/threads/wait.h"'
expect '../graph/graph.h is no path' src/base/x.c '#include "../graph/graph.h"'
expect 'belongs to no layer' src/utils/x.c 'int x;'
expect 'belongs to no layer' include/cleave/odd.h 'int x;'

expect_calls() { # text that the check must print, then files and what they hold
    local text=$1 out
    rm -rf "$tree/src"
    for shift in 2 4; do
        mkdir -p "$(dirname "$tree/src/${!shift}")"
        next=$((shift + 1))
        printf '%s\n' "${!next}" | cc -x c -c -o "$tree/src/${!shift}.o" -
    done
    if out=$("$here/check_symbol_layers.sh" "$tree/src"); then echo "not refused: $2 and $4"; exit 1; fi
    case $out in *"$text"*) ;; *) echo "expected '$text', got '$out'"; exit 1 ;; esac
}
expect_calls 'base/a.c uses up of graph/b.c, which lies above it' base/a.c \
    'int up(void); int down(void) { return up(); }' \
    graph/b.c 'int up(void) { return 1; }'
expect_calls 'base/a.c uses up of graph/b.c, which lies above it' base/a.c \
    'extern int up; int down(void) { return up; }' \
    graph/b.c 'int up = 1;'
expect_calls 'in a circle: graph/a.c uses b of graph/b.c' graph/a.c 'int b(void); int a(void) { return b(); }' \
    graph/b.c 'int a(void); int b(void) { return a(); }'
mkdir -p "$tree/sources/graph" # what an earlier build left is no breach
touch "$tree/sources/graph/a.c"
"$here/check_symbol_layers.sh" "$tree/src" "$tree/sources"

copy() { # names of a function, its parameters, and what it adds up
    printf 'static int64_t %s(const int64_t *%s, int n)\n{\n    int64_t %s = 0;\n' "$1" "$2" "$3"
    printf '    for (int i = 0; i < n; i++)\n        %s += %s[i] > 0 ? %s[i] : 0;\n' "$3" "$2" "$2"
    printf '    return %s %% 7;\n}\n' "$3"
}
rm -rf "$tree/src"
mkdir -p "$tree/src/base" "$tree/src/graph"
copy total of sum >"$tree/src/base/a.c"
copy total of sum | sed s/7/8/ >"$tree/src/graph/b.c"
"$here/check_duplicates.py" "$tree"
copy added x all >"$tree/src/graph/b.c"
if out=$("$here/check_duplicates.py" "$tree"); then echo "not refused: a function under two names"; exit 1; fi
want="the same function: total of src/base/a.c, added of src/graph/b.c"
[ "$out" = "$want" ] || { echo "said of a copy: $out"; exit 1; }

printf '/* b.c - see graph/b.c and old/c.h. */\n' >"$tree/src/graph/b.c"
for kind in archive repository; do
    [ $kind = archive ] || git -C "$tree" init -q
    if out=$("$here/check_references.py" "$tree"); then
        echo "$kind: not refused: a comment that names old/c.h"
        exit 1
    fi
    [ "$out" = "src/graph/b.c:1: there is no old/c.h" ] || { echo "$kind: said of a citation: $out"; exit 1; }
done

printf '/* b.c - see graph/b.c. */\n' >"$tree/src/graph/b.c"
git -C "$tree" -c user.name=a -c user.email=a@b commit -q --allow-empty -m "one: the first of all"
first=$(git -C "$tree" rev-parse --short HEAD)
printf 'As `git show 1234567`, *two*, has it.\n' >"$tree/page.md"
"$here/check_references.py" "$tree" # an archive's history has none of the commits
printf 'As `git show %s`, *one: the\nfirst*, has it, and `git show %s`, *one: a first*.\n' "$first" "$first" \
    >>"$tree/page.md"
if out=$("$here/check_references.py" "$tree"); then echo "not refused: a page that names 1234567"; exit 1; fi
want="page.md:1: the history has no commit 1234567
page.md:3: commit $first is called 'one: the first of all'"
[ "$out" = "$want" ] || { echo "said of commits: $out"; exit 1; }

"$here/check_profiles.py"
profiles=$tree/profiles
mkdir "$profiles"
cp "$here"/../data/profiles/h200.json "$profiles/h200.json"
"$here/check_profiles.py" "$profiles"
sed 's/"host": {/"hots": 1, "host": {"share": [[8, 0]], /; s/"source": "[^"]*"/"source": "a shop"/
    s/"efficiency": 0.6/"efficiency": 60/' "$profiles/h200.json" >"$profiles/h300.json"
if out=$("$here/check_profiles.py" "$profiles"); then echo "not refused: a profile without source"; exit 1; fi
want='profiles: h300.json: unknown key "hots"
profiles: h300.json: "name" is '"'h200'; valid: the name of the file, 'h300'"'
profiles: h300.json: "source" has fewer than 80 characters; valid: where each figure is from
profiles: h300.json: "efficiency" is 60; valid: 0.2 to 0.95
profiles: h300.json: "host": share of 8 ranks is 0; valid: 0.001 to 1'
[ "$out" = "$want" ] || { echo "said of a profile: $out"; exit 1; }
echo "layers: as they should be"
