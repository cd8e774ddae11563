#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages of the build that is there: installed into a root of their own, run from
# there, and purged without residue. Nothing of this machine is changed; root is not needed.
# Usage: … BUILD_DIRECTORY
#
# Theory of operation. dpkg works on the root with a copy of this machine's list of packages, so
# that dependencies are checked for real; maintainer scripts get the root as DPKG_ROOT. hpctl's
# programs find each other by their own place and so run from any root, with this machine's
# libraries.
set -euo pipefail
build=$(realpath "$1")
repo=$(realpath "$(dirname "$0")/../..")
# shellcheck source=tests/support/checks.sh
. "$repo/tests/support/checks.sh"
for program in dpkg-deb dpkg-shlibdeps file cpack; do
  command -v $program >/dev/null || { echo "skipped: no $program here"; exit 77; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-packages.XXXXXX")
controller=
leave() {
  # Its holders end with their job; a controller without jobs ends when it is told to.
  [ -z "$controller" ] || kill "$controller" 2>/dev/null || true
  rm -rf "$work"
}
trap leave EXIT
root=$work/root

package() { # package ACTION ARGUMENTS...: dpkg on the root
  dpkg --root="$root" --force-not-root --force-script-chrootless "$@" 2>&1 |
    grep -v 'files list file for package'
}
tree() { # all but dpkg's own records
  (cd "$1" && find . -path ./var/lib/dpkg -prune -o -path ./var/log/dpkg.log -prune -o \
    -printf '%p %y %m %l ' \( -type f -exec sha256sum {} \; -o -printf '\n' \) | sort)
}

# --- made ---------------------------------------------------------------------------------------
from=$SECONDS
(cd "$work" && cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/made") \
  >"$work/cpack.log" 2>&1 || { cat "$work/cpack.log"; exit 1; }
debs=("$work"/made/*.deb)
echo "made in $((SECONDS - from)) s: $(du -ch "${debs[@]}" | tail -n 1 | cut -f1)"
names=()
for deb in "${debs[@]}"; do
  name=$(dpkg-deb -f "$deb" Package)
  names+=("$name")
  depends=$(dpkg-deb -f "$deb" Depends)
  check_has "$name needs its libraries" "libc6 (>=" "$depends"
  version=$(dpkg-deb -f "$deb" Version)
  [ "$name" = hpctl ] || check_has "$name needs its own release" "(= $version)" "$depends"
done
check_has "the command line is one of them" " hpctl " " ${names[*]} "

# --- installed ----------------------------------------------------------------------------------
mkdir -p "$root"/var/lib/dpkg/{info,updates,triggers} "$root"/{var/log,opt} \
  "$root"/etc/{slurm/plugstack.conf.d,systemd/system}
cp /var/lib/dpkg/status "$root/var/lib/dpkg/status"
touch "$root/etc/slurm/slurm.conf"
echo 'include /etc/slurm/plugstack.conf.d/*.conf' >"$root/etc/slurm/plugstack.conf"
before=$(tree "$root")
ln -s hpctl-1234 "$root/opt/hpctl"
check_has "not over an installation by install.sh" "take it back first" \
  "$(package -i "${debs[@]}" || true)"
rm "$root/opt/hpctl"
package --purge "${names[@]}" >/dev/null || true
check "refused, it leaves nothing" "$before" "$(tree "$root")"
package -i "${debs[@]}" >"$work/dpkg.log" || { cat "$work/dpkg.log"; exit 1; }
check "dpkg has them installed" "${#debs[@]}" "$(package -l "${names[@]}" | grep -c '^ii')"
check "every package says its licence" "${#debs[@]}" \
  "$(find "$root"/usr/share/doc/hpctl*/copyright | wc -l)"

# --- the programs run ---------------------------------------------------------------------------
version=${version%-*}
for program in hpctl hpagent hpcontroller; do
  check_has "$program --version" "$version" "$("$root/usr/bin/$program" --version)"
done
programs=$root/opt/hpctl/bin
for program in hpstacks hpcontroller-step; do
  check_has "$program --help" "usage: $program" "$("$programs/$program" --help)"
done
check_lacks "hpagent finds its tables" "machine.table" \
  "$(outcome "$root/usr/bin/hpagent" check net --json)"
if [ -x "$programs/hpslurm" ]; then
  check_has "hpslurm starts" "by hpctl and hpcontroller" "$(outcome "$programs/hpslurm" by-hand)"
fi
export HPCTL_HOME=$work/home HPCTL_METRICS=
if [ -x "$programs/hptrain" ]; then
  check_has "hptrain loads its engine" "hptrain $version" "$("$programs/hptrain" --version)"
  sed 's/^nodes: .*/nodes: 1/; s/steps: 60/steps: 4/; s/every_steps: .*, keep: 3/every_steps: 4/' \
    "$root/usr/share/doc/hpctl/examples/quickstart.yaml" >"$work/job.yaml"
else
  printf 'name: packaged\nworkload: {command: ["true"]}\n' >"$work/job.yaml"
fi
said=$(outcome timeout 120 "$root/usr/bin/hpctl" submit "$work/job.yaml" --local --wait)
controller=$("$root/usr/bin/hpctl" version --json | jq -r '.controller.pid // ""')
check_has "a job runs" "FINISHED" "$said"
check_has "with the installed programs" "$programs/hpcontroller" \
  "$(tr '\0' ' ' <"/proc/$controller/cmdline")"

# --- not under the hands of a job ---------------------------------------------------------------
holders() {
  find /proc -mindepth 2 -maxdepth 2 -name exe -lname "$programs/hpagent" 2>/dev/null || true
}
printf 'name: long\nworkload: {command: [sleep, "300"]}\n' >"$work/long.yaml"
"$root/usr/bin/hpctl" submit "$work/long.yaml" --local >/dev/null
until=$((SECONDS + 60))
until [ -n "$(holders)" ] || [ $SECONDS -ge $until ]; do sleep 0.1; done
said=$(outcome package -i "${debs[@]}")
check_has "no upgrade while a job runs here" "a job runs here, so nothing is upgraded" "$said"
check "all is installed still" "${#debs[@]}" "$(package -l "${names[@]}" | grep -c '^ii')"
"$root/usr/bin/hpctl" cancel long >/dev/null
"$root/usr/bin/hpctl" wait long >/dev/null || true  # it was cancelled
until=$((SECONDS + 60))
while [ -n "$(holders)" ] && [ $SECONDS -lt $until ]; do sleep 0.1; done
check_has "afterwards there is" "exit 0" "$(outcome package -i "${debs[@]}")"

# --- what others read ---------------------------------------------------------------------------
for page in "$root"/usr/share/man/man?/*.gz; do
  command -v man >/dev/null || break
  check "$(basename "$page") is a manual page" "" \
    "$(man --warnings -E UTF-8 -l -Tutf8 "$page" 2>&1 >/dev/null)"
done
page=$(gunzip -c "$root/usr/share/man/man1/hpctl.1.gz")
for verb in $("$root/usr/bin/hpctl" --help | awk '/^Verbs:/ {on = 1; next} on && !NF {exit}
  on {print $1}'); do
  check_has "hpctl(1) has $verb" ".SS hpctl $verb" "$page"
done
check_has "hpagent(8) has its checks of the network" ".SS hpagent check network" \
  "$(gunzip -c "$root/usr/share/man/man8/hpagent.8.gz")"
for script in "$root"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/*}/*; do
  shell=${script#"$root/usr/share/"}
  shell=${shell%%[-/]*}
  command -v "$shell" >/dev/null || continue
  check "$shell reads $(basename "$script")" "" "$($shell -n "$script" 2>&1)"
done
for program in hpctl hpcontroller hpagent; do
  for script in bash-completion/completions/$program zsh/vendor-completions/_$program \
    fish/vendor_completions.d/$program.fish; do
    check "$script is there" yes "$([ -s "$root/usr/share/$script" ] && echo yes)"
  done
done

rules=$root/opt/hpctl/share/hpctl/prometheus/hpctl-rules.yml
for url in $(sed -n 's/ *runbook_url: "file:\(.*\)#.*/\1/p' "$rules" | sort -u); do
  check "the alerts' runbook is there" yes "$([ -s "$root/${url#//}" ] && echo yes)"
done
check_has "and may be elsewhere" "exit 0" \
  "$(outcome "${rules%/*}/make.sh" "$work/rules" https://docs.example.com/runbook)"
check_lacks "then no alert leads here" file: "$(cat "$work/rules/hpctl-rules.yml")"

# --- the service and Slurm's line ---------------------------------------------------------------
install() { HPCTL_ROOT=$root SLURM_CONF='' outcome "$root/opt/hpctl/share/hpctl/install.sh" "$@"; }
unit=$root/usr/lib/systemd/system/hpcontroller.service
said=$(install --controller 10.0.0.1:7300)
check_has "install.sh" "exit 0" "$said"
check "Slurm loads the plugin" "optional $root/opt/hpctl/lib/hpctl_auto_resume.so" \
  "$(cat "$root/etc/slurm/plugstack.conf.d/hpctl.conf")"
check_has "the service has its address" "
HPCTL_LISTEN=10.0.0.1:7300" "$(cat "$root/etc/hpctl/hpcontroller.env")"
check_has "again" "no change besides" "$(install --controller 10.0.0.1:7300)"
if command -v systemctl >/dev/null; then
  check "it starts with the machine" /usr/lib/systemd/system/hpcontroller.service \
    "$(readlink "$root/etc/systemd/system/multi-user.target.wants/hpcontroller.service" |
      sed 's|^/lib/|/usr/lib/|')"
fi
if systemd-analyze security --help >/dev/null 2>&1; then
  # Root, its capabilities, the network, everybody's files: what the service is for (its comments).
  said=$(systemd-analyze security --offline=true --threshold=30 --no-pager "$unit" 2>&1 |
    tail -n 1 || true)
  echo "$said"
  check_has "exposed to little" " OK " "$said"
fi

# --- and gone -----------------------------------------------------------------------------------
kill "$controller"
tail --pid="$controller" -s 0.1 -f /dev/null
controller=
check_has "no socket is left" "exit 0" "$(outcome remove_sockets)"
mkdir -p "$root/var/lib/hpctl/jobs"  # which systemd makes, and the service fills
package --purge "${names[@]}" >"$work/dpkg.log" || { cat "$work/dpkg.log"; exit 1; }
check "purged, nothing is left" "$before" "$(tree "$root")"
finish_checks
