#!/usr/bin/env bash
# Removes what `make install` put below a prefix, by the list that it left there, and the folders named cleave that are
# empty then. Everything else stays.
# usage: [DESTDIR=DIR] scripts/uninstall.sh PREFIX
set -euo pipefail
prefix=${DESTDIR:-}${1:?the prefix}
list=$prefix/share/cleave/installed

[ -f "$list" ] || { echo "uninstall: $list is missing: no installation of cleave is known there" >&2; exit 1; }
names=()
while IFS= read -r name; do
    case /$name/ in
    */../*) echo "uninstall: $list names $name, outside of the prefix" >&2; exit 1 ;;
    esac
    names+=("$name")
done <"$list"
cd "$prefix"
rm -f -- "${names[@]}"
for name in "${names[@]}"; do
    folder=$(dirname "$name")
    while [[ /$folder/ == */cleave/* ]] && rmdir -- "$folder" 2>/dev/null; do
        folder=$(dirname "$folder")
    done
done
echo "uninstall: removed ${#names[@]} files from $prefix"
