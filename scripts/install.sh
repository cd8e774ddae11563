#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs hpctl on one machine of a Slurm cluster: head, login or compute node (docs/install.md).
# Run again it changes nothing, or brings up to date what has changed.
#
#   install.sh [--bundle FILE] [--first] [--controller IP:PORT] [--cluster HOST:PORT,...]
#              [--ca FILE]
#   install.sh --uninstall
#
#   --bundle FILE  what scripts/bundle.sh made; default: hpctl-bundle.tar.gz beside this script,
#                  else that of build/release. Where the Debian packages are installed, none
#   --first        hpctl's line stands first in plugstack.conf, before another plugin's with the
#                  option --auto-resume
#   --controller IP:PORT
#                  a head node: the cluster controller is a service here, and listens there
#   --cluster HOST:PORT,...
#                  where hpctl finds cluster controllers: /etc/hpctl/cluster.conf
#   --ca FILE      certificates by which these are known (the bundle.pem of hpctl ca, of several
#                  heads one after the other): copied to /etc/hpctl/ca.pem, which cluster.conf names
#   --uninstall    takes back all of it; where the packages are installed, what they did not bring
#   HPCTL_ROOT, SLURM_PREFIX, SLURM_CONF  as install_hpctl.sh has them
#
# Exit codes: 0 done or nothing to do; 1 not done, with the reason; 2 wrong usage.
#
# Theory of operation. Programs, plugin and the line of plugstack.conf are the business of
# install_hpctl.sh, which this script calls first. What is left are files that others look for in
# their own places: systemd's unit with its environment, cluster.conf, manual pages and completions.
set -euo pipefail

say() { echo "hpctl: $*"; }
fail() { echo "hpctl: error: $*" >&2; exit 1; }
usage() { sed -n '3,/^$/s/^# \{0,1\}//p' "$0" | sed '/^Theory/,$d' >&2; exit 2; }

root=${HPCTL_ROOT:-}
root=${root%/}
prefix=$root/opt/hpctl
here=$(dirname "$(readlink -f "$0")")
unit=$root/etc/systemd/system/hpcontroller.service
environment=$root/etc/hpctl/hpcontroller.env
cluster_file=$root/etc/hpctl/cluster.conf
ca_file=$root/etc/hpctl/ca.pem
local_share=$root/usr/local/share
changes=0
changed() { changes=$((changes + 1)); say "$*"; }

# Those of dpkg are in a directory, those of a bundle behind a link.
is_packaged() { [ -d "$prefix" ] && [ ! -L "$prefix" ]; }

programs() {  # programs ARGUMENTS...: by install_hpctl.sh
  local step=$here/install_hpctl.sh
  [ -x "$step" ] || step=$here/../deploy/hyperpod/install_hpctl.sh
  "$step" "$@"
}

find_bundle() {
  local candidate
  for candidate in "$here/hpctl-bundle.tar.gz" "$here/../build/release/hpctl-bundle.tar.gz"; do
    [ -r "$candidate" ] || continue
    echo "$candidate"
    return 0
  done
  fail "no bundle; make it with scripts/build.sh and scripts/bundle.sh, or see --bundle"
}

# --- manual pages and completions of a bundle ---------------------------------------------------

text_links() {  # LINK and what it leads to, a pair a line
  local page script name shares=$prefix/share
  for page in "$shares"/man/man?/*.gz; do
    [ ! -e "$page" ] || echo "$local_share/${page#"$shares/"} $page"
  done
  for script in "$shares"/completion/{bash,zsh,fish}/*; do
    [ -e "$script" ] || continue
    name=$(basename "$script")
    case $script in
      */bash/*) echo "$local_share/bash-completion/completions/$name $script" ;;
      */zsh/*) echo "$local_share/zsh/site-functions/$name $script" ;;
      */fish/*) echo "$local_share/fish/vendor_completions.d/$name $script" ;;
    esac
  done
}

link_texts() {
  local link target
  while read -r link target; do
    if [ ! -e "$target" ] || [ -e "$link" ]; then continue; fi
    mkdir -p "$(dirname "$link")"
    ln -sfn "$target" "$link"
    changed "$link"
  done < <(text_links)
}

unlink_texts() {
  local link target
  while read -r link target; do
    [ "$(readlink "$link" || true)" = "$target" ] || continue
    rm -f "$link"
    changed "$link is gone"
  done < <(text_links)
}

# --- files with one line of ours ----------------------------------------------------------------

set_line() {  # set_line FILE NAME VALUE: the line NAME=VALUE, other lines stay
  local file=$1 name=$2 value=$3 rest=''
  [ "$(sed -n "s/^$name=//p" "$file" 2>/dev/null | tail -n 1)" != "$value" ] || return 0
  [ ! -e "$file" ] || rest=$(grep -v "^$name=" "$file" || true)
  mkdir -p "$(dirname "$file")"
  printf '%s%s=%s\n' "${rest:+$rest$'\n'}" "$name" "$value" |
    install -m 644 /dev/stdin "$file.new"
  mv -f "$file.new" "$file"
  changed "$file: $name=$value"
}

drop_line() {  # drop_line FILE NAME: and the file, if nothing else is in it
  local rest
  grep -q "^$2=" "$1" 2>/dev/null || return 0
  rest=$(grep -v "^$2=" "$1" || true)
  if [ -z "$rest" ]; then
    rm -f "$1"
  else
    echo "$rest" | install -m 644 /dev/stdin "$1.new"
    mv -f "$1.new" "$1"
  fi
  changed "$1: $2 is gone"
}

believe() {  # believe FILE
  if ! cmp -s "$1" "$ca_file"; then
    mkdir -p "$(dirname "$ca_file")"
    install -m 644 "$1" "$ca_file.new"
    mv -f "$ca_file.new" "$ca_file"
    changed "$ca_file"
  fi
  set_line "$cluster_file" HPCTL_CLUSTER_CA /etc/hpctl/ca.pem
}

believe_nobody() {
  grep -qx 'HPCTL_CLUSTER_CA=/etc/hpctl/ca.pem' "$cluster_file" 2>/dev/null || return 0
  drop_line "$cluster_file" HPCTL_CLUSTER_CA
  rm -f "$ca_file"
  changed "$ca_file is gone"
}

# --- the service --------------------------------------------------------------------------------

has_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

is_enabled() { [ -L "$(dirname "$unit")/multi-user.target.wants/hpcontroller.service" ]; }

serve() {  # serve IP:PORT
  local before=$changes
  set_line "$environment" HPCTL_LISTEN "$1"
  if ! is_packaged && ! cmp -s "$prefix/share/hpctl/hpcontroller.service" "$unit"; then
    install -D -m 644 "$prefix/share/hpctl/hpcontroller.service" "$unit"
    changed "$unit"
  fi
  if ! command -v systemctl >/dev/null; then
    say "no systemd here: nothing starts hpcontroller.service"
    return 0
  fi
  ! has_systemd || systemctl daemon-reload
  if ! is_enabled; then
    systemctl --quiet --root="${root:-/}" enable hpcontroller.service
    changed "hpcontroller.service starts with the machine"
  fi
  if has_systemd && { [ $changes -gt "$before" ] || ! systemctl -q is-active hpcontroller; }; then
    systemctl restart hpcontroller.service
    say "hpcontroller.service was started; journalctl -u hpcontroller says how it fares"
  fi
}

end_service() {
  if is_enabled; then
    systemctl --quiet --root="${root:-/}" disable hpcontroller.service
    changed "hpcontroller.service does not start any more"
  fi
  if has_systemd && systemctl -q is-active hpcontroller; then
    systemctl stop hpcontroller.service
    changed "hpcontroller.service is stopped; the controllers of jobs go on"
  fi
  drop_line "$environment" HPCTL_LISTEN
  is_packaged && return 0
  if [ -e "$unit" ]; then
    rm -f "$unit"
    changed "$unit is gone"
    ! has_systemd || systemctl daemon-reload
  fi
  if [ -d "$root/var/lib/hpctl" ]; then
    rm -rf "$root/var/lib/hpctl"
    changed "$root/var/lib/hpctl is gone"
  fi
}

# --- commands -----------------------------------------------------------------------------------

install_all() {
  local order=()
  ! $first || order=(--first)
  if is_packaged; then
    programs install --line "${order[@]}"
  else
    programs install --bundle "${bundle:-$(find_bundle)}" "${order[@]}"
    link_texts
  fi
  [ -z "$controller" ] || serve "$controller"
  [ -z "$cluster" ] || set_line "$cluster_file" HPCTL_CLUSTER "$cluster"
  [ -z "$ca" ] || believe "$ca"
  [ $changes -gt 0 ] || say "no change besides"
}

uninstall_all() {
  end_service
  drop_line "$cluster_file" HPCTL_CLUSTER
  believe_nobody
  if is_packaged; then
    programs uninstall --line
    say "the packages stay: apt-get purge hpctl"
  else
    unlink_texts
    programs uninstall
  fi
  rmdir "$root/etc/hpctl" 2>/dev/null || true
}

action=install_all
bundle='' controller='' cluster='' ca=''
first=false
while [ $# -gt 0 ]; do
  case $1 in
    --uninstall) action=uninstall_all; shift ;;
    --bundle) bundle=${2:?}; shift 2 ;;
    --controller) controller=${2:?}; shift 2 ;;
    --cluster) cluster=${2:?}; shift 2 ;;
    --ca) ca=${2:?}; shift 2 ;;
    --first) first=true; shift ;;
    *) usage ;;
  esac
done
for address in $controller ${cluster//,/ }; do
  [[ $address =~ ^[][A-Za-z0-9.:_-]+:[0-9]+$ ]] || fail "$address is not ADDRESS:PORT"
done
[ -z "$ca" ] || grep -q '^-----BEGIN CERTIFICATE-----' "$ca" || fail "$ca has no certificate in it"
$action
