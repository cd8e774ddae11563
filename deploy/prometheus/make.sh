#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes Grafana's dashboards and Prometheus's console templates of views.json, in which every query
# is written once. make.sh [DIRECTORY]: there, instead of beside this file.
set -euo pipefail
source=$(cd "$(dirname "$0")" && pwd)
target=${1:-$source}
mkdir -p "$target/grafana" "$target/consoles"
jq -r '.views[].id' "$source/views.json" | while read -r view; do
  jq --indent 1 --arg view "$view" -f "$source/grafana.jq" "$source/views.json" \
    >"$target/grafana/hpctl-$view.json"
  jq -r --arg view "$view" -f "$source/console.jq" "$source/views.json" \
    >"$target/consoles/hpctl-$view.html"
done
