#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes what has a shell complete a program's command line, from what its --help prints. (hpctl
# makes its own, from the table of its verbs: hpctl/completion.h.)
#
#   program_completion.sh bash|zsh|fish PROGRAM [COMMAND...]
#
#   COMMAND  words after the program that have a --help of their own: "check network"
#
# Theory of operation. Options are the words --name of the usage and of lines that begin with them;
# a capital word after one is its value: FILE and DIR are completed as such, others not at all. The
# usage also has the commands and their words in small letters: "hpagent check efa|net". What is
# offered is that of the longest command that is on the line already.
set -euo pipefail

shell=$1 program=$2
shift 2
name=$(basename "$program")
function=_${name//-/_}
commands=("" "$@")

help_of() { # help_of COMMAND: its usage and the lines of its options
  local words
  read -ra words <<<"$1"
  "$program" "${words[@]}" --help | awk -v name="$name " '
    tolower($0) ~ /^usage:/ { usage = 1 }
    !NF { usage = 0 }
    usage { at = index($0, name); print "usage " (at ? substr($0, at) : $0) }  # without srun
    !usage && /^ +-/ { print "option " $0 }'
}
options_of() { # options_of COMMAND: --name, or --name VALUE, a line each
  help_of "$1" | sed -E 's/^option +(-[a-zA-Z], )?((--[a-z-]+ ?[A-Z]*[^ a-z]*,? ?)+).*/usage \2/' |
    grep -oE -- '--[a-z][a-z-]*( [A-Z]+)?' | sort -u |
    awk 'NF > 1 || !($1 in value) { value[$1] = $2 }
      END { for (option in value) print option, value[option] }' |
    cat - <(echo --help) | sed 's/ $//' | sort -u
}
words_of() { # words_of COMMAND: what may follow it in small letters
  local longer rest
  {
    help_of "$1" | sed -nE "s/^usage $name ${1:+$1 }([a-z|]+)( .*)?$/\1/p" | tr '|' '\n'
    for longer in "${commands[@]}"; do
      rest=${longer#"${1:+$1 }"}
      [ "$rest" = "$longer" ] && [ -n "$1" ] || [ -z "$rest" ] || echo "${rest%% *}"
    done
  } | grep -vx "${1:-.}" | sort -u
}
offered() { # offered COMMAND, on one line
  { words_of "$1"; options_of "$1" | cut -d' ' -f1; } | paste -sd' '
}
on_value() { # on_value REGEXP ACTION: a line of a case, of the options whose value matches
  local command found
  found=$(for command in "${commands[@]}"; do options_of "$command"; done |
    awk -v value="^($1)$" 'NF > 1 && $2 ~ value { print $1 }' | sort -u | paste -sd'|')
  [ -z "$found" ] || echo "    $found) $2 ;;"
}
longest_first() {
  printf '%s\n' "${commands[@]}" | awk '{ print NF "\t" $0 }' | sort -rn | cut -f2
}

in_bash_or_zsh() { # in_bash_or_zsh LINE BEFORE DIRECTORIES FILES OFFER: a body for either
  local command
  echo "  case $2 in"
  on_value DIR "$3; return"
  on_value FILE "$4; return"
  on_value '[A-Z]+' return
  echo "  esac"
  echo "  case \" $1 \" in"
  while IFS= read -r command; do
    echo "    *\" ${command:+$command }\"*) $5 $(offered "$command")$6 ;;"
  done < <(longest_first)
  echo "  esac"
}

[ "$shell" != zsh ] || echo "#compdef $name" # its first line
echo "# Completion of $name for $shell, from its --help."
case $shell in
  bash)
    echo "$function() {"
    # shellcheck disable=SC2016 # for the shell that reads it
    echo '  local word=${COMP_WORDS[COMP_CWORD]} line="${COMP_WORDS[*]:1:COMP_CWORD-1}" offered'
    echo '  COMPREPLY=()'
    # shellcheck disable=SC2016
    in_bash_or_zsh '$line' '${COMP_WORDS[COMP_CWORD-1]}' \
      'mapfile -t COMPREPLY < <(compgen -d -- "$word")' \
      'mapfile -t COMPREPLY < <(compgen -f -- "$word")' 'offered="' '"'
    # shellcheck disable=SC2016
    echo '  mapfile -t COMPREPLY < <(compgen -W "$offered" -- "$word")'
    echo "}"
    echo "complete -o filenames -F $function $name"
    ;;
  zsh)
    echo "$function() {"
    # shellcheck disable=SC2016
    echo '  local line="${words[2,CURRENT-1]}"'
    # shellcheck disable=SC2016
    in_bash_or_zsh '$line' '${words[CURRENT-1]}' '_files -/' '_files' 'compadd --' ''
    echo "}"
    # shellcheck disable=SC2016
    echo "$function \"\$@\""
    ;;
  fish)
    while IFS= read -r command; do
      # What a longer command has is not offered to it again.
      unless=
      for longer in "${commands[@]}"; do
        [[ "$longer" != "$command"?* ]] ||
          unless+="; and not string match -q \"* $longer *\" (commandline -pc)\" \""
      done
      has="string match -q \"*${command:+ $command} *\" (commandline -pc)\" \"$unless"
      for word in $(words_of "$command"); do echo "complete -c $name -f -n '$has' -a $word"; done
      options_of "$command" | while read -r option value; do
        case $value in
          "") how=-f ;;
          FILE | DIR) how=-rF ;;
          *) how=-x ;;
        esac
        echo "complete -c $name -n '$has' -l ${option#--} $how"
      done
    done < <(longest_first)
    ;;
  *)
    echo "program_completion.sh: $shell: expected bash, zsh or fish" >&2
    exit 2
    ;;
esac
