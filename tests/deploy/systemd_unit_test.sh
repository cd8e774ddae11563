#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# systemd_unit_test.sh HPCONTROLLER: systemd's own check of deploy/systemd, with the program that
# was built in place of the installed one, and that the program takes what the unit gives it.
set -euo pipefail
program=$1
source=$(cd "$(dirname "$0")/../../deploy/systemd" && pwd)
command -v systemd-analyze >/dev/null || { echo "skipped: no systemd-analyze here"; exit 77; }
directory=$(mktemp -d /tmp/hpctl-unit.XXXXXX)
trap 'rm -rf "$directory"' EXIT

sed "s|/opt/hpctl/bin/hpcontroller|$program|; /^Documentation=/d" "$source/hpcontroller.service" \
  >"$directory/hpcontroller.service"
grep -q "$program --cluster" "$directory/hpcontroller.service" || { echo "no ExecStart"; exit 1; }
# Units that this one names are the machine's, which may have none of them.
for other in munge network-online remote-fs; do
  kind=$([ "$other" = munge ] && echo service || echo target)
  printf '[Unit]\nDescription=stand-in\n%s' "$([ $kind = service ] &&
    printf '[Service]\nExecStart=/bin/true\n')" >"$directory/$other.$kind"
done
said=$(SYSTEMD_UNIT_PATH="$directory:" systemd-analyze verify --man=no \
  "$directory/hpcontroller.service" 2>&1) || { echo "$said"; exit 1; }
said=$(grep -F hpcontroller.service <<<"$said" || true)
[ -z "$said" ] || { echo "systemd-analyze: $said"; exit 1; }

# Its options, without the service: a port that is no port is refused by the program itself.
line=$(sed -n 's/^ExecStart=//p' "$directory/hpcontroller.service")
line=${line//\$\{HPCTL_LISTEN\}/127.0.0.1}
# shellcheck disable=SC2086
if said=$($line 2>&1); then echo "took an address without a port"; exit 1; fi
grep -qF -- "--listen IP:PORT" <<<"$said" || { echo "$said"; exit 1; }
echo "deploy/systemd: checked by $(systemd-analyze --version | head -1)"
