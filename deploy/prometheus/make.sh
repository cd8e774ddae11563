#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes Grafana's dashboards and Prometheus's console templates of views.json, in which every query
# is written once.
#   make.sh [DIRECTORY [RUNBOOK]]
# DIRECTORY: there, instead of beside this file. RUNBOOK: where people read docs/runbook.md, for the
# runbook_url of alerts: the rules are then made as well, with RUNBOOK#SECTION in it.
set -euo pipefail
source=$(cd "$(dirname "$0")" && pwd)
target=${1:-$source}
mkdir -p "$target/grafana" "$target/consoles"
if [ $# -gt 1 ]; then
  [[ $2 =~ ^[a-z]+://[^[:space:]\"\\{}#]+$ ]] ||
    { echo "make.sh: RUNBOOK is no URL: $2" >&2; exit 2; }
  rules=$(<"$source/hpctl-rules.yml")
  printf '%s\n' "${rules//"file:///usr/share/doc/hpctl/runbook.md"/"$2"}" >"$target/hpctl-rules.yml"
fi
jq -r '.views[].id' "$source/views.json" | while read -r view; do
  jq --indent 1 --arg view "$view" -f "$source/grafana.jq" "$source/views.json" \
    >"$target/grafana/hpctl-$view.json"
  jq -r --arg view "$view" -f "$source/console.jq" "$source/views.json" \
    >"$target/consoles/hpctl-$view.html"
done
