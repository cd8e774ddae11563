# SPDX-License-Identifier: Apache-2.0
# Completion of hpctl's command line in bash; `hpctl completion bash` prints it. The table of what
# the verbs take, _hpctl_verb, is at the end.

_hpctl_jobs() {
  local directory
  for directory in "${HPCTL_HOME:-$HOME/.hpctl}"/jobs/[0-9]*; do
    [ ! -d "$directory" ] || echo "${directory##*/}"
  done
}

_hpctl() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local verb='' words='' given=0 files=false i word actions options valued paths operands
  COMPREPLY=()
  # Readline breaks --name=value at the equals sign.
  if [ "$current" = = ]; then
    current=''
  elif [ "$previous" = = ]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  _hpctl_verb ''
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    case $word in
      =) ((++i)) ;;
      -*) [[ " $valued " != *" $word "* || ${COMP_WORDS[i + 1]} = '=' ]] || ((++i)) ;;
      *)
        if [ -n "$verb" ]; then
          ((++given))
        else
          verb=$word
          _hpctl_verb "$verb"
        fi
        ;;
    esac
  done
  if [[ " $valued " = *" $previous "* ]]; then
    [[ " $paths " != *" $previous "* ]] || files=true
  elif [[ $current = -* ]]; then
    words=$options
  else
    [ "$given" -gt 0 ] || words=$actions
    [[ $operands != *jobs* ]] || words+=" $(_hpctl_jobs)"
    [[ $operands != *files* ]] || files=true
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if $files; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -F _hpctl hpctl

