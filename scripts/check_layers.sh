#!/usr/bin/env bash
# Checks every #include of src/ and include/ against scripts/layers.txt; names each that breaks it.
# usage: scripts/check_layers.sh [ROOT]     ROOT: the tree to check, default this one
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/..}"

find src include \( -name '*.c' -o -name '*.h' \) | sort | xargs awk -v layers="$here/layers.txt" '
function fail(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad = 1 }

BEGIN {
    while ((getline line < layers) > 0) {
        sub(/#.*/, "", line)
        n = split(line, word, " ")
        if (word[1] == "layer") {
            height[word[2]] = ++count
            home[word[2] ".h"] = word[2]          # include/cleave/nn.h belongs to nn, listed or not
            for (i = 3; i <= n; i++) home[word[i]] = word[2]
        } else if (word[1] == "public") {
            outside[word[2]] = 1
        } else if (word[1] == "extern") {
            for (i = 3; i <= n; i++) allowed[word[2]] = allowed[word[2]] " " word[i]
        }
    }
    if (count == 0) { print "no layers in " layers; bad = 1 }
}

FNR == 1 {
    path = FILENAME
    if (sub(/^src\//, "", path)) { own = path; sub(/\/.*/, "", own) }
    else { sub(/^include\/cleave\//, "", path); own = home[path] }
    if (path == "cleave.h") own = "cli"           # the header that includes all others
    if (!(own in height))
        fail("belongs to no layer: add it to scripts/layers.txt")
}

/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
    header = $0
    sub(/^[^<"]*[<"]/, "", header)
    sub(/[>"].*/, "", header)
    if (header ~ /(^|\/)\.\.\//)
        fail(header " is no path from src/ or include/")
    if (header in allowed) {
        found = 0
        n = split(allowed[header], prefix, " ")
        for (i = 1; i <= n; i++) if (index(path, prefix[i]) == 1) found = 1
        if (!found) fail(header " may be included only from" allowed[header])
        next
    }
    if (own in outside && FILENAME ~ /^src\// && header ~ /\// && header !~ "^(cleave|" own ")/" &&
        substr(header, 1, index(header, "/") - 1) in height)
        fail(own " includes " header ", which is private")
    target = header
    if (sub(/^cleave\//, "", target)) target = home[target]
    else if (!sub(/\/.*/, "", target)) next       # a system header, or one beside the file
    if (target in height && height[target] > height[own])
        fail(own " includes " header ", which lies above it")
}

END { exit bad }'
