# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# How tests in bash check: source it, check, and end with finish_checks.
failures=0

check() { # check WHAT EXPECTED FOUND
  if [ "$2" = "$3" ]; then
    echo "ok: $1"
  else
    printf 'FAILED: %s\n--- expected\n%s\n--- found\n%s\n---\n' "$1" "$2" "$3"
    failures=$((failures + 1))
  fi
}
check_has() { # check_has WHAT TEXT FOUND
  case $3 in
    *"$2"*) echo "ok: $1" ;;
    *) check "$1" "… $2 …" "$3" ;;
  esac
}
check_lacks() { # check_lacks WHAT TEXT FOUND
  case $3 in
    *"$2"*) check "$1" "nothing about: $2" "$3" ;;
    *) echo "ok: $1" ;;
  esac
}
check_promise() { # check_promise KIND WHAT EXPECTED FOUND: the kinds are in tests/support/promise.h
  check "${@:2}"
  [ "$3" = "$4" ] || echo "BROKEN PROMISE: $1" >&2
}
outcome() { # outcome COMMAND...: its output and its exit code, as two lines or more
  local code=0
  "$@" 2>&1 || code=$?
  echo "exit $code"
}
remove_sockets() { # remove_sockets: the directory of HPCTL_HOME's local socket, when nobody listens
  rmdir "/tmp/hpctl-$(id -u)/$(printf %s "$HPCTL_HOME" | sha256sum | cut -c1-12)"
}
finish_checks() {
  [ "$failures" -eq 0 ] || { echo "$failures checks failed" >&2; exit 1; }
}
