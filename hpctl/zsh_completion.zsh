#compdef hpctl
# SPDX-License-Identifier: Apache-2.0
# Completion of hpctl's command line in zsh; `hpctl completion zsh` prints it. The tables of verbs
# and of what they take, _hpctl_verbs and _hpctl_verb, are at the end.

_hpctl_jobs() {
  local -a jobs
  jobs=(${HPCTL_HOME:-$HOME/.hpctl}/jobs/<->(N:t))
  compadd -a jobs
}

_hpctl() {
  if (( CURRENT > 2 )); then
    shift words
    (( CURRENT-- ))
    _hpctl_verb $words[1]
  elif [[ $PREFIX == -* ]]; then
    compadd -- --json --version --help -h
  else
    _hpctl_verbs
  fi
}

