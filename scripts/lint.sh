#!/usr/bin/env bash
# Layers, functions that stand twice, files that comments name, hardware profiles, formatting, 120 columns, headers that
# compile alone, examples that stay short; with --tidy also clang-tidy (minutes); with --fix, formats.
set -euo pipefail
cd "$(dirname "$0")/.."

files=$(git ls-files --cached --others --exclude-standard '*.c' '*.h' ':!tests/golden')
if [ "${1:-}" = --fix ]; then
    clang-format -i $files
    exit 0
fi
bad=0
scripts/check_layers.sh || bad=1
scripts/check_duplicates.py || bad=1
scripts/check_references.py || bad=1
scripts/check_profiles.py || bad=1
scripts/check_headers.sh || bad=1
for example in generate.c embed.c two_layers.c plan_70b.c custom_op.c spmd.c cpp17.cpp; do
    [ "$(wc -l <"examples/$example")" -le 82 ] || { echo "lint: examples/$example has more than 82 lines"; bad=1; }
done
generated='^src/tokens/unicode/character_class_table.c$'
columns=$(printf '%s\n' $files examples/cpp17.cpp | grep -v "$generated")
awk 'length($0) > 120 { printf "lint: %s:%d: %d columns\n", FILENAME, FNR, length($0); bad = 1 } END { exit bad }' \
    $columns $(git ls-files --cached --others --exclude-standard '*.py' '*.sh' '*CMakeLists.txt' '*.cmake' Makefile \
        .ci/run scripts/mutate scripts/cleave-run ':!tests/golden') || bad=1
# Pages: what is neither a table nor shown as it is printed.
awk 'FNR == 1 { shown = 0 } /^ *```/ { shown = !shown }
    shown || /^ *\|/ || /^    / { next }
    length($0) > 120 { printf "lint: %s:%d: %d columns\n", FILENAME, FNR, length($0); bad = 1 }
    END { exit bad }' $(git ls-files --cached --others --exclude-standard '*.md') || bad=1
clang-format --dry-run -Werror $files || { echo "lint: run 'make format'"; bad=1; }
if [ "${1:-}" = --tidy ]; then
    cmake --preset release >/dev/null
    find src -name '*.c' -print0 |
        xargs -0 -n 4 -P "$(nproc)" clang-tidy --quiet --extra-arg=-Wno-unknown-warning-option -p build || bad=1
fi
[ $bad -eq 0 ] && echo "lint: clean"
exit $bad
