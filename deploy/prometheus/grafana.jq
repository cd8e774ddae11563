# SPDX-License-Identifier: Apache-2.0
# One view of views.json, named by --arg view, as a dashboard for Grafana 9 and later.
def datasource: {type: "prometheus", uid: "${datasource}"};
def selector($variables): [$variables[] | "\(.)=~\"$\(.)\""] | join(",");
def variable($all; $name): {
  name: $name, type: "query", label: $all[$name].label, datasource: datasource,
  query: {query: $all[$name].query, refId: "A"}, definition: $all[$name].query,
  refresh: 2, multi: true, includeAll: true, allValue: ".*",
  current: {text: "All", value: "$__all"}};
# Panels flow from left to right, 24 columns wide; a row is as high as its panels.
def placed: reduce .[] as $panel ({x: 0, y: 0, high: 0, panels: []};
  ($panel.width) as $w | (if $panel.kind == "plot" then 8 else 5 end) as $h
  | if .x + $w > 24 then .y += .high | .x = 0 | .high = 0 else . end
  | .panels += [$panel + {pos: {x, y, w: $w, h: $h}}]
  | .x += $w | .high = ([.high, $h] | max)) | .panels;
def panel($selector): {
  type: (if .kind == "plot" then "timeseries" else "stat" end), title, datasource: datasource,
  gridPos: .pos,
  fieldConfig: {overrides: [], defaults: (
    {unit: (.unit // "short")}
    + (if .unit == "percentunit" then {min: 0, max: 1} else {} end)
    + (if .stack then {custom: {stacking: {mode: .stack}, fillOpacity: 60}} else {} end))},
  targets: [.queries | to_entries[] | {
    expr: (.value[0] | gsub("\\{@"; "{" + $selector)), legendFormat: .value[1],
    refId: ([65 + .key] | implode)}]}
  + (if .kind == "names" then {options: {textMode: "name"}} else {} end);

.variables as $all | .views[] | select(.id == $view) | selector(.variables) as $selector | {
  uid: "hpctl-\(.id)", title, tags: ["hpctl"], schemaVersion: 37, version: 1, editable: true,
  refresh: "10s", time: {from: "now-6h", to: "now"},
  links: [{type: "dashboards", tags: ["hpctl"], title: "hpctl", asDropdown: false,
           includeVars: true, keepTime: true, targetBlank: false, icon: "external link"}],
  templating: {list: ([{name: "datasource", type: "datasource", query: "prometheus",
                        label: "Data source"}]
                      + [.variables[] as $name | variable($all; $name)])},
  annotations: {list: []},
  panels: [.panels | placed | to_entries[] | {id: (.key + 1)} + (.value | panel($selector))]}
