#!/usr/bin/env bash
# Checks calls and uses of data between the library's object files against scripts/layers.txt: none goes up a layer, and
# files do not call each other in a circle. Names each call that does.
# usage: scripts/check_symbol_layers.sh OBJECTS [SOURCES]
#        OBJECTS: a folder that holds the objects of src/ as FOLDER/FILE.c.o; those without a source in SOURCES
#        (FOLDER/FILE.c) were left there by an earlier build, and do not count
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
layers=$here/layers.txt
sources=${2:+$(realpath "$2")}
cd "$1"
find . -name '*.c.o' | sort | while read -r object; do
    source=${object#./}
    [ -z "$sources" ] || [ -e "$sources/${source%.o}" ] || continue
    nm -g "$object" | awk -v file="${object#./}" '{ sub(/\.o$/, "", file); print file, $(NF - 1), $NF }'
done | awk -v layers="$layers" '
function folder(file) { sub(/\/.*/, "", file); return file }

function visit(from,    n, next_, i) {
    if (visited[from]++) return
    n = split(uses_of[from], next_, " ")
    for (i = 1; i <= n; i++) visit(next_[i])
}

function reaches(from, to) {
    split("", visited)
    visit(from)
    return to in visited
}

BEGIN {
    while ((getline line < layers) > 0) {
        sub(/#.*/, "", line)
        n = split(line, word, " ")
        if (word[1] == "layer") height[word[2]] = ++count
        if (word[1] == "circle") free[word[2]] = 1
    }
    if (count == 0) { print "no layers in " layers; bad = 1 }
}

$2 != "U" && $2 !~ /[vw]/ { home[$3] = $1 }
$2 == "U" { user[++uses] = $1; symbol[uses] = $3 }
!seen[$1]++ { file[++files] = $1 }

END {
    if (files == 0) { print "no objects"; exit 1 }
    for (i = 1; i <= uses; i++) {
        from = user[i]; to = home[symbol[i]]
        if (to == "" || to == from) continue
        if (height[folder(to)] > height[folder(from)]) {
            print from " uses " symbol[i] " of " to ", which lies above it"
            bad = 1
        }
        if ((from, to) in why) continue
        if (folder(from) == folder(to) && free[folder(from)]) continue
        why[from, to] = symbol[i]
        edges++; tail[edges] = from; head[edges] = to
        uses_of[from] = uses_of[from] " " to
    }
    for (e = 1; e <= edges; e++)
        if (reaches(head[e], tail[e])) {
            print "in a circle: " tail[e] " uses " why[tail[e], head[e]] " of " head[e]
            bad = 1
        }
    exit bad
}'
