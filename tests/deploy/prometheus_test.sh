#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deploy/prometheus: promtool accepts rules and every query of the dashboard and runs the rules' own
# tests; no name is used that docs/metrics.md does not have and the controller does not serve.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dir=deploy/prometheus

is_served() { grep -rqF --include=*.cc "\"$1\"" controller; }
jq -er '.panels | length > 0' "$dir/hpctl-dashboard.json" >/dev/null
jq -r '.panels[].targets[].expr' "$dir/hpctl-dashboard.json" >"$work/queries"
grep -oh 'hpctl_[a-z_]*' "$work/queries" "$dir/hpctl-rules.yml" | sed 's/_bucket$//' | sort -u |
  while read -r name; do
    grep -q "\`$name[\`{]" docs/metrics.md || { echo "$name: not in docs/metrics.md"; exit 1; }
    is_served "$name" || { echo "$name: not served by the controller"; exit 1; }
  done
# And what the table promises is served.
grep -oh '`hpctl_[a-z_]*' docs/metrics.md | tr -d '`' | sort -u | while read -r name; do
  is_served "$name" || { echo "$name: documented, not served"; exit 1; }
done

if ! command -v promtool >/dev/null; then
  echo "promtool is not installed (Debian package prometheus): rules and queries not parsed"
  exit 77
fi
{
  echo 'groups: [{name: dashboard, rules: ['
  # Grafana's variables stand for values.
  sed 's/\$name/.*/g' "$work/queries" |
    jq -R '{record: "q:\(input_line_number)", expr: .}' |
    sed 's/^}$/},/'
  echo ']}]'
} >"$work/queries.yml"
promtool check rules "$work/queries.yml" "$dir/hpctl-rules.yml"
promtool test rules "$dir/hpctl-rules-test.yml"
