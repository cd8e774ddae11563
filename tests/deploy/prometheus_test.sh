#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deploy/prometheus without a running Prometheus: dashboards and consoles are those of views.json,
# promtool accepts configuration, rules and every query, and runs the rules' own tests, in which
# each alert fires and clears, as in prometheus_test; each has a section of the runbook; no name is
# used that docs/metrics.md does not have and the controller does not serve.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dir=deploy/prometheus

"$dir/make.sh" "$work"
for part in grafana consoles; do
  diff -r --exclude=hpctl.lib "$work/$part" "$dir/$part" ||
    { echo "$dir/$part is not made of views.json: run $dir/make.sh"; exit 1; }
done

# The rules lead to where the package has the runbook, or to any other place.
packaged=file:///usr/share/doc/hpctl/runbook.md
"$dir/make.sh" "$work/elsewhere" 'https://docs.example.com/runbook?a=1&b=2'
diff <(sed "s|$packaged#|https://docs.example.com/runbook?a=1\\&b=2#|" "$dir/hpctl-rules.yml") \
  "$work/elsewhere/hpctl-rules.yml" ||
  { echo "make.sh with another runbook changes something else"; exit 1; }
[ "$(grep -c 'runbook_url: "https://docs.example.com/' "$work/elsewhere/hpctl-rules.yml")" -eq \
  "$(grep -c -- "- alert: " "$dir/hpctl-rules.yml")" ] ||
  { echo "an alert has no runbook"; exit 1; }
if "$dir/make.sh" "$work/elsewhere" docs/runbook.md 2>/dev/null; then
  echo "make.sh takes a relative path, which nobody can follow"
  exit 1
fi

is_served() { grep -rqF --include=*.cc "\"$1\"" controller; }
jq -r '.panels[].targets[].expr' "$dir"/grafana/*.json >"$work/queries"
[ -s "$work/queries" ] || { echo "no dashboard has a query"; exit 1; }
grep -oh 'hpctl_[a-z_]*' "$work/queries" "$dir/hpctl-rules.yml" | sed 's/_bucket$//' | sort -u |
  grep -vx hpctl_node |  # a label of the targets
  while read -r name; do
    grep -q "\`$name[\`{]" docs/metrics.md || { echo "$name: not in docs/metrics.md"; exit 1; }
    is_served "$name" || { echo "$name: not served by the controller"; exit 1; }
  done
# And what the table promises is served.
grep -oh '`hpctl_[a-z_]*' docs/metrics.md | tr -d '`' | sort -u | grep -vEx 'hpctl_(node|job)' |
  while read -r name; do
    is_served "$name" || { echo "$name: documented, not served"; exit 1; }
  done

sed -n 's/.*- alert: //p' "$dir/hpctl-rules.yml" | while read -r alert; do
  if [[ $alert != HpctlFinding* ]]; then  # theirs are the sections of the kinds (job_watch_test)
    grep -qx "## $alert" docs/runbook.md ||
      { echo "$alert: no section in docs/runbook.md"; exit 1; }
    grep -qF "runbook_url: \"$packaged#${alert,,}\"" "$dir/hpctl-rules.yml" ||
      { echo "$alert: no runbook_url in $dir/hpctl-rules.yml"; exit 1; }
  fi
  # On a real Prometheus, too: named where it is to fire, and where it is to clear.
  [ "$(grep -c "\"$alert\"" tests/integration/prometheus_test.cc)" -ge 2 ] ||
    { echo "$alert: prometheus_test does not have it fire and clear"; exit 1; }
  # A check that begins with eval_time on a line of its own expects the alert, a short one none.
  told=$(sed -nE "s/^ *alertname: $alert$/fires/p; s/.*\{eval_time: .*alertname: $alert\}/quiet/p" \
    "$dir/hpctl-rules-test.yml" | tr '\n' ' ')
  [[ $told == *"fires quiet"* ]] ||
    { echo "$alert: $dir/hpctl-rules-test.yml does not show that it fires and clears"; exit 1; }
done
# Sections of findings that have no alert are written as the finding is (job_watch_test).
sed -n 's/^## \(Hpctl\)/\1/p' docs/runbook.md | while read -r section; do
  grep -q "alert: $section$" "$dir/hpctl-rules.yml" || { echo "$section: no such alert"; exit 1; }
done

if ! command -v promtool >/dev/null; then
  echo "promtool is not installed (Debian package prometheus): rules and queries not parsed"
  exit 77
fi
{
  echo 'groups: [{name: dashboard, rules: ['
  # Grafana's variables stand for values.
  sed -E 's/\$[a-z]+/.*/g' "$work/queries" |
    jq -R '{record: "q:\(input_line_number)", expr: .}' |
    sed 's/^}$/},/'
  echo ']}]'
} >"$work/queries.yml"
promtool check config "$dir/prometheus.yml"
promtool check rules "$work/elsewhere/hpctl-rules.yml"
promtool check rules "$work/queries.yml"
promtool test rules "$dir/hpctl-rules-test.yml"
