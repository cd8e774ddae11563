# SPDX-License-Identifier: Apache-2.0
# One view of views.json, named by --arg view, as a console template of Prometheus. Every query is
# run by the server, for the numbers; hpctl.lib has the page around them and the script that plots.
def selector($variables): [$variables[] | "\(.)=~%q"] | join(",");
# A value, for people. humanize alone makes 500m of a half.
def format: {percentunit: "{{ . | value | humanizePercentage }}", bytes: "{{ . | value | humanize1024 }}B",
    s: "{{ . | value | humanizeDuration }}"}[.] // "{{ template \"hpctl_number\" (. | value) }}";
# {{name}} of a legend is the label of that name.
def legend: gsub("\\{\\{(?<label>[a-z_]+)\\}\\}"; "{{label \"\(.label)\" .}}");
# What the variables of the page are put into, quoted as PromQL wants it.
def query($variables): . as $q | (gsub("%"; "%%") | gsub("\\{@"; "{" + selector($variables))) as $f
  | ([range(0; ($q | split("{@") | length) - 1)] | map($variables | map("$" + .)) | add // [])
  | "printf `\($f)`" + (map(" " + .) | join(""));
def html: gsub("&"; "&amp;") | gsub("<"; "&lt;") | gsub("\""; "&quot;");
def rows($variables; $unit; $kind):
  (.[0] | query($variables)) as $query | (.[1] | legend) as $legend
  | "{{ $query = \($query) }}"
  + "<tbody data-query=\"{{ $query }}\" data-legend=\"\(.[1] | html | gsub("\\{\\{(?<l>[a-z_]+)\\}\\}"; "[\(.l)]"))\">\n"
  + "{{ range query $query }}<tr><th>\($legend)</th>"
  + (if $kind == "names" then "" else "<td>\($unit)</td>" end)
  + "</tr>\n{{ else }}<tr class=\"none\"><th>no data</th></tr>\n{{ end }}</tbody>\n";
def panel($variables):
  .unit as $unit | .kind as $kind
  | "<section class=\"\(.kind)\" style=\"grid-column: span \(.width)\" data-unit=\"\(.unit // "")\""
  + " data-stack=\"\(.stack // "")\">\n<h2>\(.title | html)</h2>\n<table>\n"
  + ([.queries[] | rows($variables; ($unit // "" | format); $kind)] | join(""))
  + "</table>\n</section>\n";

.variables as $all | .views as $views | .views[] | select(.id == $view) | .variables as $variables |
"{{/* SPDX-License-Identifier: Apache-2.0. Made of views.json by make.sh. */ -}}\n"
+ "{{ template \"hpctl_head\" \"\(.title)\" }}\n{{ $query := \"\" }}\n"
+ ($variables | map("{{ $\(.) := or .Params.\(.) \".*\" }}\n") | join(""))
+ "<nav>" + ([$views[] | "<a href=\"hpctl-\(.id).html\"\(if .id == $view then " class=\"here\"" else "" end)>\(.id)</a>"] | join("\n"))
+ "</nav>\n<form>\n"
+ ($variables | map(. as $name | (if . == "user" then "hpctl_cluster_job_state" else
    "{__name__=~`hpctl_job_state|hpctl_cluster_job_state`}" end) as $of
    | (if . == "node" then "hpctl_train_compute_seconds" else $of end) as $of
    | "<label>\($all[$name].label)\n<select name=\"\($name)\"><option value=\".*\">all</option>\n"
    + "{{ range query \"count by (\($name)) (\($of))\" | sortByLabel \"\($name)\" }}"
    + "<option{{ if eq (label \"\($name)\" .) $\($name) }} selected{{ end }}>{{ label \"\($name)\" . }}</option>\n"
    + "{{ end }}</select></label>\n") | join(""))
+ "<label>Last\n<select name=\"span\">{{ $span := or .Params.span \"3600\" }}\n"
+ ([["60", "minute"], ["600", "10 minutes"], ["3600", "hour"], ["21600", "6 hours"], ["86400", "day"],
    ["604800", "week"]] | map("<option value=\"\(.[0])\"{{ if eq $span \"\(.[0])\" }} selected{{ end }}>\(.[1])</option>\n")
   | join("")) + "</select></label>\n"
+ "</form>\n<main>\n" + ([.panels[] | panel($variables)] | join(""))
+ "</main>\n{{ template \"hpctl_foot\" }}"
