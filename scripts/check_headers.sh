#!/usr/bin/env bash
# Compiles each public header alone, as C17 and as C++17, and says which does not stand by itself, or is not in
# cleave.h; which of its functions and types has no comment, or one that does not say how it fails and who frees what it
# makes; which header does not say what threads may do, and which line is longer than 120 columns.
set -euo pipefail
cd "$(dirname "$0")/.."

bad=0
scripts/check_header_comments.py || bad=1
for header in include/cleave/*.h; do
    [ "$header" = include/cleave/cleave.h ] || grep -qF "#include \"${header#include/}\"" include/cleave/cleave.h ||
        { echo "cleave.h does not include $header"; bad=1; }
    grep -qi thread "$header" || { echo "$header does not say what threads may do"; bad=1; }
    for language in c c++; do
        compiler=${CC:-cc} standard=c17
        [ $language = c++ ] && compiler=${CXX:-c++} standard=c++17
        "$compiler" -x $language -std=$standard -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only - \
            <<<"#include \"${header#include/}\"" || { echo "$header does not compile alone as $standard"; bad=1; }
    done
done
awk 'length($0) > 120 { printf "%s:%d: %d columns\n", FILENAME, FNR, length($0); bad = 1 }
    /^CLV_(API|EXPERIMENTAL) / || /^typedef (struct|enum) / {
        if (before !~ /\*\/$/ || before ~ /^\/\* -/) { printf "%s:%d: no comment: %s\n", FILENAME, FNR, $0; bad = 1 }
    }
    { before = $0 }
    END { exit bad }' include/cleave/*.h || bad=1
exit $bad
