#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs hpctl on one node of a Slurm cluster: a step for HyperPod's lifecycle scripts, the same
# on controller, login and compute nodes (docs/hyperpod.md). Run again it changes nothing, or
# brings up to date what has changed (the bundle, Slurm).
#
#   install_hpctl.sh [install] [--bundle FILE] [--first] [--line]
#   install_hpctl.sh uninstall [--line]
#
#   --bundle FILE  what scripts/bundle.sh made; default: hpctl-bundle.tar.gz beside this script
#   --first        hpctl's line stands first in plugstack.conf: --auto-resume becomes hpctl's where
#                  another plugin has the option too
#   --line         the line of plugstack.conf only: the programs are those of the Debian packages
#   HPCTL_ROOT     every path below hangs under it (default: /), for tests and images
#   SLURM_PREFIX   where Slurm is, if not in /opt/slurm or /usr
#   SLURM_CONF     Slurm's configuration, if not in $SLURM_PREFIX/etc or /etc/slurm
#
# Exit codes: 0 done or nothing to do; 1 not done, with the reason; 2 wrong usage.
#
# Theory of operation. The bundle is unpacked beside /opt/hpctl into a directory that is named after
# its contents and the node's Slurm; the plugin and hpslurm are compiled in it; then the link
# /opt/hpctl is turned to it, at once. The version before stays for jobs, and so do older ones that
# processes of this machine run from. Only then, and only once, plugstack.conf gets its line. In a
# configless cluster that is done on the controller alone: a node's own copy is a cache that slurmd
# overwrites, and an `include` of a directory does not travel, so there the line stands in the main
# file.
set -euo pipefail

say() { echo "hpctl: $*"; }
fail() { echo "hpctl: error: $*" >&2; exit 1; }
usage() { sed -n '3,/^$/s/^# \{0,1\}//p' "$0" | sed '/^Theory/,$d' >&2; exit 2; }

root=${HPCTL_ROOT:-}
root=${root%/}
prefix=$root/opt/hpctl
plugin=$prefix/lib/hpctl_auto_resume.so
tmpfiles=$root/etc/tmpfiles.d/hpctl.conf
links=("$root/usr/local/bin/hpctl" "$root/usr/local/bin/hpagent")
changes=0
changed() { changes=$((changes + 1)); say "$*"; }

# --- what kind of node this is ----------------------------------------------------------------

find_slurm() {  # sets $slurm; empty when Slurm's headers or library are not here
  local candidate library
  slurm='' libslurm=''
  for candidate in ${SLURM_PREFIX:-"$root/opt/slurm" "$root/usr"}; do
    [ -r "$candidate/include/slurm/spank.h" ] || continue
    for library in "$candidate"/lib{,64,/*-linux-gnu}/libslurm.so; do
      [ -r "$library" ] || continue
      slurm=$candidate libslurm=$library
      return 0
    done
  done
}

# A copy that slurmd fetched is no place for changes.
is_cache() {
  case $(readlink -f "$1") in */conf-cache/* | "$root"/run/slurm/conf/*) return 0 ;; esac
  return 1
}

find_configuration() {  # sets $conf: a slurm.conf that is kept by hand; empty on a configless node
  local candidate
  conf=''
  for candidate in ${SLURM_CONF:-"${slurm:-$root/opt/slurm}/etc/slurm.conf" \
    "$root/etc/slurm/slurm.conf" "$root/etc/slurm-llnl/slurm.conf"}; do
    [ -r "$candidate" ] || continue
    is_cache "$candidate" || { conf=$candidate; return 0; }
  done
}

is_configless() { grep -qiE '^[^#]*SlurmctldParameters=[^#]*enable_configless' "$conf"; }

plugstack_file() {  # of $conf; the paths in it are absolute on the machine itself
  local path
  path=$(sed -nE 's/^[[:space:]]*PlugStackConfig=([^[:space:]#]+).*/\1/Ip' "$conf" | tail -n 1)
  if [ -z "$path" ]; then
    path=$(dirname "$conf")/plugstack.conf
  elif [ -z "${SLURM_CONF:-}" ] && [[ $path != "$root"/* ]]; then
    path=$root$path
  fi
  readlink -f "$path" || echo "$path"
}

# --- plugstack.conf ---------------------------------------------------------------------------

includes_of() {  # the patterns that FILE includes, absolute
  local pattern
  sed -nE 's/^[[:space:]]*include[[:space:]]+([^[:space:]#]+).*/\1/Ip' "$1" |
    while read -r pattern; do
    case $pattern in
      /*) [ -n "${SLURM_CONF:-}" ] || [[ $pattern == "$root"/* ]] || pattern=$root$pattern ;;
      *) pattern=$(dirname "$1")/$pattern ;;
    esac
    echo "$pattern"
  done
}
stack_files() {  # FILE and, one level deep, what it includes
  local pattern
  [ -r "$1" ] || return 0
  echo "$1"
  includes_of "$1" | while read -r pattern; do
    compgen -G "$pattern" || true
  done
}
own_line='^[[:space:]]*(optional|required)[[:space:]].*/hpctl_auto_resume\.so([[:space:]]|$)'
other_owner() {  # a plugin before ours that knows --auto-resume
  local file kind library
  stack_files "$1" | while read -r file; do
    while read -r kind library _; do
      case $kind in optional | required) ;; *) continue ;; esac
      [[ $library != */hpctl_auto_resume.so ]] || return 0
      [ -r "$library" ] || library=$(dirname "${libslurm:-/}")/slurm/$library
      ! grep -qaF auto-resume "$library" 2>/dev/null || echo "$library"
    done <"$file"
  done
}

replace_file() {  # replace_file FILE: by stdin, atomically, with its mode
  local new
  new=$(mktemp "$1.XXXXXX")
  cat >"$new"
  if [ -e "$1" ]; then chmod --reference="$1" "$new"; else chmod 644 "$new"; fi
  mv -f "$new" "$1"
}

include_directory() {  # where a file of our own would be read; empty when nowhere
  local pattern
  includes_of "$1" | while read -r pattern; do
    # shellcheck disable=SC2053  # a pattern it is
    [[ $(dirname "$pattern")/hpctl.conf == $pattern && -d $(dirname "$pattern") ]] || continue
    dirname "$pattern"
    break
  done
}

add_line() {
  local stack=$1 line="optional $plugin" directory='' file
  while read -r file; do
    grep -qE "$own_line" "$file" || continue
    grep -qF "$plugin" "$file" ||
      say "warning: $file loads the plugin of another installation, which stays; remove that line"
    ! $first || stands_first "$stack" || { remove_line "$stack"; break; }
    return 0
  done < <(stack_files "$stack")
  if ! is_configless && ! $first && [ -r "$stack" ]; then
    directory=$(include_directory "$stack")
  fi
  if [ -n "$directory" ]; then
    echo "$line" | replace_file "$directory/hpctl.conf"
    changed "$directory/hpctl.conf loads the plugin"
    return 0
  fi
  {
    ! $first || echo "$line"
    [ ! -r "$stack" ] || sed -e '$a\' "$stack"
    $first || echo "$line"
  } | replace_file "$stack"
  changed "$stack loads the plugin"
}

stands_first() { grep -vE '^[[:space:]]*(#|$)' "$1" | head -n 1 | grep -qE "$own_line"; }

remove_line() {
  local file rest
  while read -r file; do
    grep -qE "$own_line" "$file" || continue
    rest=$(grep -vE "$own_line" "$file" || true)
    if [ -z "$rest" ]; then rm -f "$file"; else echo "$rest" | replace_file "$file"; fi
    changed "$file does not load the plugin any more"
  done < <(stack_files "$1")
}

tell_slurm() {  # configless nodes fetch plugstack.conf when they are told to
  local scontrol=scontrol
  [ ! -x "$slurm/bin/scontrol" ] || scontrol=$slurm/bin/scontrol
  if ! timeout 10 "$scontrol" ping 2>/dev/null | grep -q ' UP'; then
    say "slurmctld does not run yet; it hands out the new plugstack.conf when it does"
  elif timeout 60 "$scontrol" reconfigure; then
    say "slurmctld was told to hand out the new plugstack.conf (scontrol reconfigure)"
  else
    fail "run 'scontrol reconfigure' on the controller: the nodes have the old plugstack.conf"
  fi
}

# --- the programs -----------------------------------------------------------------------------

version_of() {  # the bundle, and the Slurm that the plugin is for
  { sha256sum <"$bundle"
    [ -z "$slurm" ] || cat "$slurm"/include/slurm/*.h "$slurm/include/slurm/slurm_version.h"
    readlink -f "${libslurm:-none}"; } | sha256sum | cut -c1-12
}

compile() {  # compile STAGE: the two parts that depend on Slurm's release
  local src=$1/share/hpctl/src program
  for program in cc c++; do
    command -v $program >/dev/null && continue
    say "no $program: the plugin and hpslurm are not built"
    return 1
  done
  (
    cd "$src" &&
    cc -std=gnu11 -O2 -fPIC -shared -I. -I"$slurm/include" slurm-plugins/auto_resume/*.c \
      -Wl,--version-script=slurm-plugins/auto_resume/auto_resume.lds -ldl \
      -o "$1/lib/hpctl_auto_resume.so" &&
    c++ -std=c++2a -O2 -I. -isystem include -I"$slurm/include" \
      slurm-plugins/hpslurm/*.cc common/*/*.cc "$libslurm" \
      -Wl,-rpath,"$(dirname "$libslurm")" -pthread -o "$1/libexec/hpslurm" &&
    ln -s ../libexec/hpslurm "$1/bin/hpslurm"
  ) || { say "the plugin and hpslurm do not compile against $slurm (see above)"; return 1; }
}

unpack() {  # unpack VERSION
  local stage home=$prefix-$1
  mkdir -p "$(dirname "$prefix")"
  stage=$(mktemp -d "$prefix.new-XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$stage'" EXIT
  tar -C "$stage" --strip-components=1 --no-same-owner -xzf "$bundle" ||
    fail "$bundle cannot be unpacked; nothing was changed"
  chmod 755 "$stage"
  if [ -n "$slurm" ]; then
    compile "$stage" ||
      fail "nothing was changed; with a compiler and Slurm's headers, run this again"
  fi
  rm -rf "$home"
  mv -T "$stage" "$home"
  trap - EXIT
}

is_in_use() {  # is_in_use DIRECTORY: by a process of this machine
  # Processes come and go meanwhile, which find and grep take for errors. An hpagent that runs from
  # a local copy names the directory in its command line.
  [ -n "$(find /proc -mindepth 2 -maxdepth 2 -name exe -lname "$1/*" 2>/dev/null || true)" ] ||
    [ -n "$(find /proc -mindepth 2 -maxdepth 2 -name exe -lname '*/programs/*/hpagent' \
      -printf '%h/cmdline\0' 2>/dev/null | xargs -0r grep -lsaFe "$1/" || true)" ]
}

switch_to() {  # switch_to VERSION: at once; older ones go, but not those that jobs may run on
  local home before
  before=$(readlink "$prefix" || true)
  [ ! -e "$prefix" ] || [ -L "$prefix" ] || fail "$prefix is not of this script: move it away first"
  ln -sfn "hpctl-$1" "$prefix.turn"
  mv -fT "$prefix.turn" "$prefix"
  for home in "$prefix"-*; do
    case $(basename "$home") in "hpctl-$1" | "$before") continue ;; esac
    ! is_in_use "$home" || { say "$home stays: jobs run on it"; continue; }
    rm -rf "$home"
  done
}

install_programs() {
  local version link
  version=$(version_of)
  if [ "$(readlink "$prefix" || true)" != "hpctl-$version" ] || [ ! -x "$prefix/bin/hpctl" ]; then
    unpack "$version"
    switch_to "$version"
    changed "version $version is in $prefix"
    [ -z "$slurm" ] || say "plugin and hpslurm are built for the Slurm in $slurm"
  fi
  mkdir -p "$(dirname "${links[0]}")"
  for link in "${links[@]}"; do
    [ "$(readlink "$link" || true)" != "$prefix/bin/$(basename "$link")" ] || continue
    [ ! -e "$link" ] || { say "warning: $link is not of this script and stays"; continue; }
    ln -s "$prefix/bin/$(basename "$link")" "$link"
    changed "$link"
  done
}

# Without it systemd-tmpfiles takes from /tmp what a job of weeks has not touched for days.
install_tmpfiles() {
  local wanted=$prefix/share/hpctl/hpctl-tmpfiles.conf
  [ -d "$(dirname "$tmpfiles")" ] && [ -r "$wanted" ] || return 0
  ! cmp -s "$wanted" "$tmpfiles" || return 0
  replace_file "$tmpfiles" <"$wanted"
  changed "$tmpfiles keeps what running jobs have in /tmp"
}

# --- commands ---------------------------------------------------------------------------------

install() {
  local stack owner
  if $line_only; then
    [ -r "$plugin" ] || fail "no $plugin; install the package hpctl-agent"
  else
    bundle=$(readlink -e "$bundle") ||
      fail "no bundle; make it with scripts/bundle.sh, or see --bundle"
    install_programs
    install_tmpfiles
  fi
  if [ -z "$slurm" ] && ! $line_only; then
    say "no Slurm headers here (looked for include/slurm/spank.h and libslurm.so in" \
      "${SLURM_PREFIX:-/opt/slurm, /usr}): neither plugin nor hpslurm;" \
      "run this again when there are"
  elif [ -z "$conf" ]; then
    say "no slurm.conf of its own: this node gets plugstack.conf from the controller"
  else
    stack=$(plugstack_file)
    add_line "$stack"
    if [ $changes -gt 0 ] && is_configless; then tell_slurm; fi
    owner=$(other_owner "$stack" | head -n 1)
    [ -z "$owner" ] || say "$owner stands first and has --auto-resume: hpctl's restarts are" \
      "--hpctl-resume=1 or HPCTL_AUTO_RESUME=1, or install with --first"
  fi
  [ $changes -gt 0 ] || say "no change: version $(readlink "$prefix" || echo of the packages)" \
    "is in place"
}

remove_programs() {
  local link
  for link in "${links[@]}"; do
    [ "$(readlink "$link" || true)" = "$prefix/bin/$(basename "$link")" ] || continue
    rm -f "$link"
    changed "$link is gone"
  done
  if [ -e "$tmpfiles" ]; then
    rm -f "$tmpfiles"
    changed "$tmpfiles is gone"
  fi
  if [ -L "$prefix" ]; then
    rm -rf "$prefix" "$prefix"-*
    changed "$prefix is gone; jobs that run on it cannot start further processes"
  fi
}

uninstall() {
  if [ -n "$conf" ]; then
    remove_line "$(plugstack_file)"
    if [ $changes -gt 0 ] && is_configless; then tell_slurm; fi
  fi
  $line_only || remove_programs
  [ $changes -gt 0 ] || say "no change: nothing of hpctl is installed"
}

action=install
bundle=$(dirname "$(readlink -f "$0")")/hpctl-bundle.tar.gz
first=false
line_only=false
while [ $# -gt 0 ]; do
  case $1 in
    install | uninstall) action=$1; shift ;;
    --bundle) bundle=${2:?}; shift 2 ;;
    --first) first=true; shift ;;
    --line) line_only=true; shift ;;
    *) usage ;;
  esac
done
find_slurm
find_configuration
$action
