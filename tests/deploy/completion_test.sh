#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages and completion of hpcontroller, hpagent and hptrain are of what their --help says:
# every option of it, and no other. Bash itself completes; zsh and fish read their scripts where
# they are installed. (hpctl's are in cli_verbs_test.)
#
#   completion_test.sh BIN_DIRECTORY
set -euo pipefail
bin=$1
tools=$(realpath "$(dirname "$0")/../../tools")
# shellcheck source=tests/support/checks.sh
. "$(dirname "$0")/../support/checks.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-completion.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The options that a help text has, by the words alone: what follows an srun on a line is its own.
named() { # named PROGRAM [WORD...]
  "$bin/$1" "${@:2}" --help |
    sed -nE "/^ +-|^(usage:)? .*$1 |^ +\[--/p" |
    sed -E "s/^(usage:)? *//;s/.*srun.* $1 //;s/  +[a-z0-9].*//" |
    grep -oE -- '--[a-z][a-z-]*' | cat - <(echo --help) | sort -u
}
offered() { # offered PROGRAM WORD...: for the last of them, the options
  bash --norc -c 'set -u; . "$0"; program=$1; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
    "_${program}"; [ ${#COMPREPLY[@]} -eq 0 ] || printf "%s\n" "${COMPREPLY[@]}"' \
    "$work/$1.bash" "$@" | sort -u
}

for program in hpcontroller hpagent hptrain; do
  [ -x "$bin/$program" ] || continue # a build without a trainer
  commands=()
  [ $program != hpagent ] || commands=(check "check network")
  for shell in bash zsh fish; do
    "$tools/program_completion.sh" $shell "$bin/$program" "${commands[@]}" >"$work/$program.$shell"
    if command -v $shell >/dev/null; then
      check "$shell reads it" "" "$($shell -n "$work/$program.$shell" 2>&1)"
    fi
  done
  section=$([ $program = hptrain ] && echo 1 || echo 8)
  "$tools/man_page.sh" "$bin/$program" "$section" 0 "${commands[@]}" >"$work/page"
  for command in "" "${commands[@]}"; do
    read -ra words <<<"$command"
    options=$(named $program "${words[@]}")
    check_has "$program $command has options" "--help" "$options"
    check "$program $command: what bash offers" "$options" "$(offered $program "${words[@]}" --)"
    for option in $options; do
      [ "$option" = --help ] ||
        check_has "$program(8): $option" "${option//-/\\-}" "$(cat "$work/page")"
      check_has "zsh offers $option" " $option" "$(cat "$work/$program.zsh")"
      check_has "fish offers $option" " -l ${option#--} " "$(cat "$work/$program.fish")"
    done
    [ -z "$command" ] ||
      check_has "$program(8) has $command" ".SS $program $command" "$(cat "$work/page")"
  done
done
check "hpagent's commands" check "$(offered hpagent ch)"
check "what can be checked" "efa
fs
gpu
host
net
network" "$(offered hpagent check "" | grep -v -e ^- -e ^all)"
mkdir "$work/jobs"
check "a directory" "$work/jobs" "$(offered hpcontroller --job-dir "$work/jo")"
check "a number is nobody's to guess" "" "$(offered hpcontroller --job "")"
check "a file" "$work/page" "$(offered hpagent check network --meeting "$work/pa")"
check "another shell" "exit 2" \
  "$(outcome "$tools/program_completion.sh" tcsh "$bin/hpagent" 2>/dev/null | tail -1)"
finish_checks
