#!/usr/bin/env bash
# Every option of every command is in its manual page and in the completions; the pages are sound, and the completions
# complete. Tools that are not there (groff, mandoc, zsh, fish) are passed over, and named.
# usage: scripts/test_manual.sh BUILD
set -euo pipefail
build=$(cd "${1:?the folder of a build}" && pwd)
share=$build/share
bash_file=$share/bash-completion/completions/cleave zsh_file=$share/zsh/site-functions/_cleave
fish_file=$share/fish/vendor_completions.d/cleave.fish
bad=0
complain() { echo "$@"; bad=1; }
without=
have() { command -v "$1" >/dev/null || { without+=" $1"; return 1; }; }

# ---- commands and options, as --help has them ----
commands() { "$build/cleave" "$@" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'; }
options() { "$build/cleave" "$@" --help all | sed -n '/^Options:/,$s/^  \(-.*\)/\1/p' | sed 's/  .*//' |
    grep -oE -- '(^|[ ,|])-[-a-z0-9]*[a-z0-9]' | sed 's/^[ ,|]//' | grep -v '^--*$'; }
paths=()
for command in $(commands); do
    [ "$command" = bench ] || paths+=("$command")
done
for command in $(commands bench); do paths+=("bench $command"); done
[ ${#paths[@]} -gt 15 ] || complain "too few commands: ${paths[*]}"
count=0
for path in "${paths[@]}"; do
    page=$share/man/man1/cleave-${path// /-}.1
    [ -s "$page" ] || { complain "no page: $page"; continue; }
    in_bash=$(sed -n "/^    '$path')/,/esac ;;/p" "$bash_file")
    case $path in bench*) function=_cleave_bench ;; *) function=_cleave ;; esac
    in_zsh=$(sed -n "/^$function() {/,/^}/p" "$zsh_file" | sed -n "/^        ${path##* })/,/ ;;$/p")
    in_fish=$(grep -F -- "-n '__cleave_in $path'" "$fish_file")
    in_page=$(sed 's/\\-/-/g' "$page")
    for option in $(options $path); do
        count=$((count + 1))
        grep -qF -- "\\fB$option\\fR" <<<"$in_page" || complain "cleave $path: $option is not in its page"
        case $option in -h | --help) continue ;; esac
        grep -q -- "[' (|]$option[' )|]" <<<"$in_bash" || complain "cleave $path: bash does not know $option"
        grep -q -- "'[^']*[)*]$option=*\[" <<<"$in_zsh" || complain "cleave $path: zsh does not know $option"
        grep -q -- " -[lso] ${option##*(-)}\|-[lso] $(sed 's/^-*//' <<<"$option") " <<<"$in_fish" ||
            complain "cleave $path: fish does not know $option"
    done
done
[ $count -gt 150 ] || complain "too few options: $count"

# ---- pages ----
for page in "$share"/man/man1/*.1; do
    if have groff; then
        out=$(groff -man -Kutf8 -Tutf8 -ww -z "$page" 2>&1) && [ -z "$out" ] || complain "groff: $page: $out"
    fi
    if have mandoc; then # links that only it knows, and a date, are none of its warnings here
        out=$(mandoc -T lint -W warning "$page" | grep -v 'missing date' || true)
        [ -z "$out" ] || complain "mandoc: $out"
    fi
done

# ---- bash, asked as it asks ----
ask() { # what must be among the answers ("" none), words; the last is being written
    local want=$1
    shift
    local got
    got=$(bash -c 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cleave; printf "%s\n" "${COMPREPLY[@]}"' \
        "$bash_file" "$@")
    if [ -z "$want" ]; then
        [ -z "$got" ] || complain "bash: '$*' is completed by $got"
    else
        grep -qxF -- "$want" <<<"$got" || complain "bash: '$*' is not completed by $want, but by: $got"
    fi
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" && mkdir "a model" && touch "a file"
ask plan cleave pl
ask --version cleave --v
ask plan cleave help pl
ask gemm cleave bench ge
ask generate cleave bench ''
ask --temp cleave generate -m x --te
ask --iterations cleave bench block --it
ask '' cleave generate --iter
ask llama cleave plan --block ''
ask gpt cleave plan --block = g
ask llama cleave plan --block =
ask h100-nvlink-ib cleave plan --hardware h
ask 'a file' cleave plan --hardware a
ask fsdp+megatron-sp cleave plan --rules fs
ask 'a model' cleave generate -m a
ask 'a file' cleave train --text 'a file' a
ask '' cleave plan --batch 8
ask -tp cleave generate -t

# ---- zsh, fish ----
if have zsh; then
    zsh -n "$zsh_file" || complain "zsh: $zsh_file"
fi
if have fish; then
    fish -n "$fish_file" || complain "fish: $fish_file"
    answer() {
        fish -c "source '$fish_file'; complete -C '$2'" | cut -f 1 | grep -qxF -- "$1" ||
        complain "fish: '$2' is not completed by $1"
    }
    answer plan 'cleave pl'
    answer gemm 'cleave bench g'
    answer --block 'cleave plan --bl'
    answer llama 'cleave plan --block l'
fi
[ $bad = 0 ] || exit 1
missing=$(tr ' ' '\n' <<<"$without" | sort -u | tr '\n' ' ')
echo "manual: $count options of ${#paths[@]} commands${without:+; not here:$missing}"
