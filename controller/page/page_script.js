// SPDX-License-Identifier: Apache-2.0
// The script of the status page (page.html). All text from jobs is set as text, never as HTML.
// #job=KEY shows one job, #job=KEY&steps=A-B some of its steps, #show=WORDS&sort=-step the list.
// The page asks for the state once a second while it is seen; the longer an answer takes, the less
// often. What is in files (plots, log, checkpoints) is asked for apart from that, so that a file
// system that does not answer leaves the rest alive. Live regions are the two in the header alone,
// and are written only when there is something to say.
"use strict";
const main = document.getElementById("main");
const POLL_MS = 1000;

// ---- small parts -------------------------------------------------------------------------------

// make("td.number", {title: "x"}, child, "text", …)
function make(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
// 12.3k, as hpctl ps has it.
function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < 5) { value /= 1000; ++unit; }
  const size = Math.abs(value), suffix = ["", "k", "M", "G", "T", "P"][unit];
  if (unit > 0) return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2) + suffix;
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
}
// 1h20m, likewise.
function shortDuration(ms) {
  const s = Math.floor(Math.max(0, ms) / 1000), two = (n) => String(n).padStart(2, "0");
  if (s < 60) return s + "s";
  if (s < 3600) return Math.floor(s / 60) + "m";
  if (s < 86400) return Math.floor(s / 3600) + "h" + two(Math.floor(s % 3600 / 60)) + "m";
  const days = Math.floor(s / 86400);
  return days < 100 ? days + "d" + two(Math.floor(s % 86400 / 3600)) + "h" : days + "d";
}
const percent = (value) => value === null || value === undefined ? "–" : (100 * value).toFixed(2) + " %";
const loss = (value) => value === null || value === undefined ? "–" : value.toFixed(4);
function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (ms < 10000 && ms > 0) return (ms / 1000).toFixed(1) + " s";
  if (seconds < 60) return seconds + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min " + seconds % 60 + " s";
  return Math.floor(seconds / 3600) + " h " + String(Math.floor(seconds / 60) % 60).padStart(2, "0") + " min";
}
// What nobody knows has no age.
function age(job, now) {
  return job.submitted_ms ? shortDuration((job.ended_ms || now) - job.submitted_ms) : "–";
}
// Only what differs is put there: what has the focus, or is being read, stays.
function renew(parent, ...children) {
  const fresh = parent.cloneNode(false);
  fresh.append(...children.filter((child) => child !== null && child !== undefined));
  if (!fresh.isEqualNode(parent)) parent.replaceChildren(...fresh.childNodes);
}
// One cell per row, its class and title by look(row, i); those that are there are used again.
function paint(grid, rows, name, look) {
  let cell = grid.firstElementChild;
  rows.forEach((row, i) => {
    if (!cell) cell = grid.appendChild(document.createElement("div"));
    const [kind, title] = look(row, i);
    if (cell.className !== "cell " + kind) cell.className = "cell " + kind;
    if (cell.title !== title) cell.title = title;
    if (cell.dataset[name] !== String(row[0])) cell.dataset[name] = row[0];
    cell = cell.nextElementSibling;
  });
  while (grid.childElementCount > rows.length) grid.lastElementChild.remove();
}
function write(id, text) {
  const element = document.getElementById(id);
  if (element.textContent !== text) element.textContent = text;
}
// Read out where `key` is another than before: words about what is so for a time change as it passes.
let saidKey = "";
function say(key, text) {
  if (key === saidKey) return;
  saidKey = key;
  write("said", text);
}
const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
function moodOfState(state) {
  if (state === "RUNNING" || state === "FINISHED") return "good";
  if (state === "FAILED" || state === "TIMEOUT") return "bad";
  return state === "CANCELLED" ? "idle" : "warn";
}
const badge = (state) => make("span.state." + moodOfState(state), {}, state);
// Of findings, whose first word is a severity.
const moodOf = (finding) => finding[0] === "critical" ? "bad" : "warn";
const findingText = ([severity, what, action]) => severity + ": " + what + " \u2014 " + action;
function stateOf(job) {
  if (!job.findings.length) return badge(job.state);
  const worst = job.findings.find((f) => moodOf(f) === "bad") || job.findings[0];
  return make("span", {title: job.findings.map(findingText).join("\n")}, badge(job.state),
    make("b." + moodOf(worst), {}, " " + worst[0] + (job.findings.length > 1 ? " \u00d7 " + job.findings.length : "")));
}

// ---- all jobs ----------------------------------------------------------------------------------

// As hpctl ps has them, and the loss. [key, title, value to sort by]
const columns = [
  ["job", "JOB", (j) => j.job], ["name", "NAME", (j) => j.name], ["user", "USER", (j) => j.user.padStart(/^\d/.test(j.user) ? 10 : 0)],
  ["state", "STATE", (j) => j.state], ["nodes", "NODES", (j) => j.nodes || null], ["step", "STEP", (j) => j.step || null],
  ["loss", "LOSS", (j) => j.loss], ["tokens_per_second", "TOK/S", (j) => j.tokens_per_second || null], ["eta", "ETA", (j) => j.eta_ms],
  ["restarts", "RESTARTS", (j) => j.restarts], ["goodput", "GOODPUT", (j) => j.goodput],
  ["age", "AGE", (j) => -j.submitted_ms], ["reason", "REASON", (j) => j.reason]];
const numeric = new Set(["job", "nodes", "loss", "tokens_per_second", "eta", "goodput", "restarts", "age"]);
let sortBy = "job", descending = true, filter = "";
// A summary has no loss.
const columnsOf = (data) => columns.filter((c) => !(data.fleet && c[0] === "loss"));
const SILENT_MS = 15000;
const reasonOf = (job) => (job.heard_ms > SILENT_MS ? "its controller has not answered for " + duration(job.heard_ms) + "; " : "") + job.reason;
const counts = (jobs) => jobs.length + (jobs.length === 1 ? " job: " : " jobs: ") + counted(jobs, (j) => j.state || "not told yet");

// The step, of how many, and a bar of that share.
function progressOf(job) {
  if (!job.step && !job.steps) return "–";
  if (!job.steps) return String(job.step);
  const bar = make("progress", {max: job.steps, value: Math.min(job.step, job.steps), "aria-hidden": "true"});
  return make("span.steps", {}, make("span", {}, job.step + "/" + job.steps), bar);
}
// Of a job that waits in the queue, or is held, only its name and state are known.
function cellOf(key, job, now) {
  switch (key) {
    case "job": return make("a", {href: "#job=" + job.key}, String(job.job));
    case "name": return make("a", {href: "#job=" + job.key, title: job.name}, job.name);
    case "user": return job.user || "–";
    case "state": return job.state ? stateOf(job) : "–";
    case "reason": return make("span", {title: reasonOf(job)}, reasonOf(job));
    case "age": return age(job, now);
  }
  if (job.told === false) return "–";
  switch (key) {
    case "step": return progressOf(job);
    case "loss": return loss(job.loss);
    case "tokens_per_second": return job.tokens_per_second > 0 ? short(job.tokens_per_second) : "–";
    case "eta": return job.eta_ms === null || job.eta_ms === undefined ? "–" : shortDuration(job.eta_ms);
    case "goodput": return job.goodput === null ? "–" : Math.floor(100 * job.goodput) + "%";
    case "nodes": return job.nodes ? String(job.nodes) : "–";
    default: return String(job[key]);
  }
}

function showJobs(data) {
  const where = data.fleet ? (data.all_users ? "all jobs at " : "your jobs at ") + data.node : "on " + data.node;
  document.title = "hpctl " + where;
  write("title", where);
  let input = document.getElementById("filter");
  if (!input) {
    input = make("input", {id: "filter", type: "search", placeholder: "name, state or user", value: filter,
      input: () => { filter = input.value; keepLink(); showJobs(latest); }});
    main.replaceChildren(make("section", {},
      make("div.tools", {}, make("label", {for: "filter"}, "Show"), input, make("span.dim", {id: "counts"})),
      make("div.wide", {}, make("table.jobs", {}, make("caption", {hidden: ""}, "Jobs"), make("thead"), make("tbody")))));
    if (data.fleet) main.append(make("section", {"aria-label": "Nodes"}, make("h2", {}, "Nodes"), make("div", {id: "nodes"})));
  }
  latest = data;
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const value = columns.find((c) => c[0] === sortBy)[2];
  const jobs = data.jobs.filter((j) => words.every((w) => (j.name + " " + j.state + " " + j.user + " " + j.job).toLowerCase().includes(w)));
  jobs.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return x === y ? a.job - b.job : x === null ? 1 : -1;  // unknown ones last
    const order = x === y ? a.job - b.job : x < y ? -1 : 1;
    return descending ? -order : order;
  });
  write("counts", counts(data.jobs));
  say("all|" + counts(data.jobs), counts(data.jobs));
  const table = main.querySelector("table");
  const focused = document.activeElement?.dataset?.sort;
  table.tHead.replaceChildren(make("tr", {}, ...columnsOf(data).map(([key, title]) =>
    make("th.c-" + key + (numeric.has(key) ? ".number" : ""), {scope: "col", "aria-sort": key !== sortBy ? null : descending ? "descending" : "ascending"},
      make("button", {type: "button", "data-sort": key, click: () => {
        descending = sortBy === key ? !descending : numeric.has(key) || key === "step";
        sortBy = key;
        keepLink();
        showJobs(latest);
      }}, title)))));
  if (focused) table.tHead.querySelector("[data-sort=" + focused + "]")?.focus();
  const link = document.activeElement?.closest?.("tbody a")?.getAttribute("href");
  table.tBodies[0].replaceChildren(...jobs.map((job) => make("tr", {}, ...columnsOf(data).map(([key]) =>
    make("td.c-" + key + (numeric.has(key) ? ".number" : ""), {}, cellOf(key, job, data.now_ms))))));
  if (link) table.tBodies[0].querySelector('a[href="' + link + '"]')?.focus();
  if (data.fleet) showFleetNodes(data.node_rows, data.jobs, data.lemons);
}

// ---- one job -----------------------------------------------------------------------------------

function moodOfNode([, role, state]) {
  if (role === "lost" || role === "quarantined" || state === "down") return "bad";
  if (role === "spare") return "idle";
  return state === "up" ? "good" : state === "ended" ? "idle" : "warn";
}
const counted = (rows, name) => {
  const counts = {};
  for (const row of rows) counts[name(row)] = (counts[name(row)] || 0) + 1;
  return Object.entries(counts).map(([word, n]) => n + " " + word).join(", ");
};

const standbysOf = ([, , , , s]) => !s ? "" : "standbys: " + s[1] + " of " + s[0] + " ready" +
  (s[2] ? ", " + s[2] + " loading" : "") + (s[3] ? ", " + Math.round(s[3] / 1048576) + " MiB" : "");
// The sum of those of all nodes, as those of one.
const allStandbys = (rows) => rows.reduce((sum, [, , , , s]) => s ? sum.map((n, i) => n + s[i]) : sum, [0, 0, 0, 0]);
// What jobs say against the machine: named where it is a lemon.
const lemonOf = ([, , , , , l]) => l && l[1] ? "lemon " + l[0].toFixed(1) + ": " + l[2] : "";
const nodeText = (row) => [[row[1], row[2], standbysOf(row)].filter(Boolean).join(", "), row[3], lemonOf(row)].filter(Boolean).join("; ");

function showNodes(job) {
  const words = counted(job.node_rows, ([, role, state]) => role === "active" ? state : role === "spare" ? "spare, " + state : role);
  const notable = job.node_rows.filter((row) => row[3] || lemonOf(row) || moodOfNode(row) === "bad");
  const standbys = job.node_rows.some((row) => row[4]) ? standbysOf([, , , , allStandbys(job.node_rows)]) : null;
  write("node-words", words || "none yet");
  paint(document.getElementById("node-grid"), job.node_rows, "node", (row) => [moodOfNode(row), row[0] + ": " + nodeText(row)]);
  renew(document.getElementById("node-notes"), standbys && make("div.dim", {}, standbys),
    ...notable.slice(0, 50).map((row) => make("div", {}, make("b", {}, row[0]), " " + nodeText(row))),
    ...job.stragglers.map((text) => make("div.warn", {}, "slow: " + text)));
}

// Of the cluster's page: what is known of a node is what its jobs say.
function showFleetNodes(rows, jobs, lemons) {
  const lemonOn = new Map(lemons.map((l) => [l[0], "lemon " + l[1].toFixed(1) + (l[2] ? ": " + l[2] : "")]));
  const text = ([name, places, note]) => [places.map((i) => "job " + jobs[i].job + " " + jobs[i].state).join(", "), note, lemonOn.get(name)].filter(Boolean).join("; ");
  const mood = ([name, places, note]) => note === "in quarantine" ? "bad" : note || lemonOn.has(name) ? "warn"
    : places.every((i) => moodOfState(jobs[i].state) === "good") ? "good" : "warn";
  const section = document.getElementById("nodes");
  if (!section.firstChild) {
    section.append(make("div", {id: "node-words"}), make("div.grid", {id: "node-grid", "aria-hidden": "true"}), make("div", {id: "node-notes"}),
      make("div.dim", {}, "green: of jobs that run; yellow: of one that does not, slow, or a lemon; red: in quarantine"));
  }
  const noted = counted(rows.filter((row) => row[2]), (row) => row[2]);
  write("node-words", rows.length + " of jobs that have not ended" + (noted ? ": " + noted : ""));
  const grid = document.getElementById("node-grid");
  grid.classList.toggle("dense", rows.length > 1000);
  paint(grid, rows, "node", (row) => [mood(row), row[0] + ": " + text(row)]);
  const named = new Set(rows.map((row) => row[0]));
  const notable = rows.filter((row) => row[2] || lemonOn.has(row[0]));
  renew(document.getElementById("node-notes"), ...notable.slice(0, 50).map((row) => make("div", {}, make("b", {}, row[0]), " " + text(row))),
    ...lemons.filter((l) => !named.has(l[0])).slice(0, 50).map((l) => make("div", {}, make("b", {}, l[0]), " " + lemonOn.get(l[0]))));
}

// ---- ranks -------------------------------------------------------------------------------------

// How each rank's cell is shaded: a value of it, and the bounds between the seven shades.
const shades = {
  own: {word: "own step time", bounds: [1.05, 1.15, 1.3, 1.5, 2, 3], text: (bound) => bound + " \u00d7",
    what: "its own part of a step, in times that of the median rank", title: "Slowest by their own time"},
  wait: {word: "waiting", bounds: [0.05, 0.15, 0.3, 0.45, 0.6, 0.8], text: (bound) => Math.round(100 * bound) + " %",
    what: "share of a step in which it waits for others", title: "Waiting longest"},
};
const MOST_IN_TABLE = 64, MOST_LISTED = 20;
let shadeBy = "own", ranked = null;

const ownMs = (row) => row[5] - row[6];
function shadeOf(value, bounds) {
  const above = bounds.findIndex((bound) => value < bound);
  return "heat" + (above < 0 ? bounds.length : above);
}
// "" = it is in step and trains, and its shade is by its times.
function trouble(row, furthest) {
  if (row[2] === "exited" && row[3] !== "finished") return "bad";
  if (row[3] === "finished") return "idle";
  if (row[3] !== "training" && row[3] !== "saving") return "warn";
  return row[4] + 1 < furthest ? "bad" : "";
}
function rankTable(title, rows, head, cells) {
  return make("div.wide", {}, make("table", {}, make("caption", {hidden: ""}, title),
    make("thead", {}, make("tr", {}, ...head.map(([t, number]) => make(number ? "th.number" : "th", {scope: "col"}, t)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...cells(row).map((text, i) => make(head[i][1] ? "td.number" : "td", {}, text)))))));
}
const wholeTable = (rows) => rankTable("Ranks", rows,
  [["RANK", 1], ["NODE"], ["PHASE"], ["STEP", 1], ["OWN MS", 1], ["WAITING MS", 1]],
  (row) => [String(row[0]), row[1], row[2] === "exited" ? row[2] : row[3], String(row[4]), short(ownMs(row)), short(row[6])]);
// The ranks of which `value` is greatest, in words: a map of very many cells is for the eye alone.
function topTable(shade, rows, value) {
  const top = rows.filter((row) => value(row) > 0).sort((a, b) => value(b) - value(a) || a[0] - b[0]).slice(0, MOST_LISTED);
  return make("div", {"data-top": shade}, make("h3", {}, shades[shade].title), rankTable(shades[shade].title, top,
    [["RANK", 1], ["NODE"], ["OWN MS", 1], ["WAITING MS", 1]], (row) => [String(row[0]), row[1], short(ownMs(row)), short(row[6])]));
}
function makeRanks() {
  const choice = (name) => make("label", {}, make("input", {type: "radio", name: "shade", value: name, checked: name === shadeBy ? "" : null,
    change: () => { shadeBy = name; if (ranked) showRanks(ranked); }}), " " + shades[name].word);
  return make("section", {"aria-label": "Ranks"}, make("h2", {}, "Ranks"), make("div", {id: "rank-words"}),
    make("fieldset", {id: "shade"}, make("legend", {}, "Shade by"), choice("own"), choice("wait")),
    make("div.grid", {id: "rank-grid", "aria-hidden": "true"}), make("div", {id: "rank-legend"}), make("div", {id: "rank-tables"}));
}
function showRanks(job) {
  ranked = job;
  const rows = job.rank_rows, shade = shades[shadeBy];
  const typical = rows.map(ownMs).sort((a, b) => a - b)[Math.floor(rows.length / 2)] || 0;
  const furthest = rows.reduce((most, row) => Math.max(most, row[4]), 0);
  const value = shadeBy === "own" ? (row) => typical > 0 ? ownMs(row) / typical : 0 : (row) => row[5] > 0 ? row[6] / row[5] : 0;
  write("rank-words", counted(rows, (row) => row[2] === "exited" ? "exited" : row[3]) || "none yet");
  const grid = document.getElementById("rank-grid");
  grid.classList.toggle("dense", rows.length > 1000);
  paintByNode(grid, rows, (row) => [trouble(row, furthest) || shadeOf(value(row), shade.bounds),
    "rank " + row[0] + " on " + row[1] + ": " + row[3] + ", step " + row[4] +
    (row[5] ? ", " + short(ownMs(row)) + " ms of its own, " + short(row[6]) + " ms waiting for others" : "")]);
  document.getElementById("shade").hidden = rows.length === 0;
  const step = (i) => i === 0 ? "under " + shade.text(shade.bounds[0]) : shade.text(shade.bounds[i - 1]) + (i === shade.bounds.length ? " and more" : "");
  renew(document.getElementById("rank-legend"), ...(rows.length === 0 ? [] : [make("div.dim", {}, shade.what),
    make("div.legend", {}, ...[...shade.bounds, 0].map((_, i) => make("span", {}, make("span.cell.heat" + i, {"aria-hidden": "true"}), step(i))),
      make("span", {}, make("span.cell.warn", {"aria-hidden": "true"}), "not training yet"),
      make("span", {}, make("span.cell.bad", {"aria-hidden": "true"}), "behind, or gone"))]));
  renew(document.getElementById("rank-tables"), rows.length === 0 ? null : rows.length <= MOST_IN_TABLE ? wholeTable(rows)
    : make("div.pair", {}, topTable("own", rows, ownMs), topTable("wait", rows, (row) => row[6])));
}

// A row of cells for each node, unless there are too many to name.
const MOST_NODES_NAMED = 64;
function paintByNode(grid, rows, look) {
  const nodes = new Map();
  for (const row of rows) nodes.get(row[1])?.push(row) ?? nodes.set(row[1], [row]);
  const named = nodes.size <= MOST_NODES_NAMED && rows.length <= 1000;
  grid.classList.toggle("by-node", named);
  if (!named) {
    if (grid.querySelector(".of-node")) grid.replaceChildren();
    return paint(grid, rows, "rank", look);
  }
  const words = [...nodes.keys()].join("\n");
  if (grid.dataset.nodes !== words || !grid.querySelector(".of-node")) {
    grid.dataset.nodes = words;
    grid.replaceChildren(...[...nodes.keys()].map((node) => make("div.of-node", {}, make("span.dim", {title: node}, node), make("div.grid"))));
  }
  [...nodes.values()].forEach((ranks, i) => paint(grid.children[i].lastChild, ranks, "rank", look));
}

const timeMood = {train: "good", start: "idle", suspended: "idle", checkpoint: "warn", data: "warn"};
function timeTable(job) {
  const total = job.time.reduce((sum, part) => sum + part[1], 0) || 1;
  return make("div.wide", {}, make("table", {}, make("tbody", {}, ...job.time.filter((part) => part[1] > 0).map(([name, ms, what]) => make("tr", {},
    make("th", {scope: "row"}, name), make("td.number", {}, duration(ms)), make("td.number", {}, percent(ms / total)), make("td.dim", {}, what))))));
}
// Of the cluster's page, which has no timeline.
function showTime(job) {
  const total = job.time.reduce((sum, part) => sum + part[1], 0) || 1;
  return make("section", {"aria-label": "Time"}, make("h2", {}, "Where the time went"),
    make("div.bar", {"aria-hidden": "true"}, ...job.time.filter((part) => part[1] > 0).map(([name, ms, what]) => {
      const piece = make("span." + (timeMood[name] || "bad"), {title: name + ": " + duration(ms) + ", " + what});
      piece.style.flexGrow = ms / total;
      return piece;
    })), timeTable(job));
}

function eventLine(event, former) {
  const where = [event.node, event.rank >= 0 ? "rank " + event.rank : ""].filter(Boolean).join(" ");
  return make("li" + (former && former.generation !== event.generation && event.generation ? ".new" : ""), {},
    make("span.dim", {title: new Date(event.at_ms).toISOString()}, clock(event.at_ms) + (event.generation ? " g" + event.generation : "")),
    make("span", {}, event.type), make("span", {}, event.cause || where));
}

let story = null, shownJob = null;
function showHistory() {
  const why = document.getElementById("why"), list = document.getElementById("events");
  if (!story || !why) return;
  why.replaceChildren(make("p", {}, story.summary), make("ol.events", {}, ...story.why.map((e) => eventLine(e))));
  const events = story.events;
  list.replaceChildren(make("ol.events", {}, ...events.map((e, i) => eventLine(e, events[i + 1])).reverse()),
    story.left_out ? make("p.dim", {}, story.left_out + " older ones are left out; hpctl events has them") : "");
  write("events-count", "Events (" + (events.length + story.left_out) + ")");
  Plots.setMarks(story.timeline.marks);
  showTimeline();
}

// ---- timeline ----------------------------------------------------------------------------------

const partWords = {start: "start", train: "training", repeat: "repeated steps", decide: "deciding", wait: "waiting", restart: "starting workers",
  suspended: "suspended"};
// When the step was completed; null = not known.
function timeOfStep(step) {
  const series = Plots.whole();  // of a zoom, the first step may be a later one
  const times = series?.columns?.time;
  if (!times) return null;
  const at = series.last.findIndex((last) => last >= step);
  return at < 0 ? null : 1000 * (times.low ? times.low[at] : times.v[at]);
}
// [part, from, to, cause]: steps after a fault are repetitions until the step that had been reached.
function piecesOf(segments, now) {
  const pieces = [];
  segments.forEach(([part, from, cause, regain], i) => {
    const to = i + 1 < segments.length ? segments[i + 1][1] : part === "ended" ? from : now;
    if (part === "ended" || to <= from) return;
    const again = regain ? timeOfStep(regain) : null;
    if (again === null || again <= from) return pieces.push([part, from, to, cause]);
    pieces.push(["repeat", from, Math.min(again, to), "until step " + regain]);
    if (again < to) pieces.push([part, again, to, cause]);
  });
  return pieces;
}
function showTimeline() {
  const holder = document.getElementById("timeline");
  if (!holder || !story || !shownJob) return;
  const pieces = piecesOf(story.timeline.segments, shownJob.ended_ms || shownJob.now_ms);
  if (pieces.length === 0) return holder.replaceChildren();
  const begin = pieces[0][1], end = pieces[pieces.length - 1][2];
  const bar = make("div.bar.timeline", {role: "img", "aria-label": "What the job did over time; the table below has the sums"});
  for (const [part, from, to, cause] of pieces) {
    const piece = make("span.part-" + part, {title: partWords[part] + ", " + duration(to - from) + ", from " + clock(from) + (cause ? ": " + cause : "")});
    piece.style.flexGrow = (to - from) / (end - begin || 1);
    bar.append(piece);
  }
  const kinds = Object.keys(partWords).filter((part) => pieces.some((piece) => piece[0] === part));
  holder.replaceChildren(bar, make("div.ends.dim", {}, make("span", {}, new Date(begin).toLocaleString("en-GB")), make("span", {}, new Date(end).toLocaleString("en-GB"))),
    make("div.legend", {}, ...kinds.map((part) => make("span", {}, make("i.key.part-" + part), partWords[part]))));
}

// ---- step times over time ----------------------------------------------------------------------

let heat = null;
function colourOfHeat(ratio) {
  const style = getComputedStyle(document.documentElement);
  const rgb = (name) => style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi).map((h) => parseInt(h, 16));
  const cold = rgb("--cold"), hot = rgb("--hot"), share = Math.max(0, Math.min(1, (ratio - 1) / 1.5));
  return cold.map((c, i) => Math.round(c + share * (hot[i] - c)));
}
function showHeat(columns) {
  const section = document.getElementById("heat");
  heat = columns;
  const rows = Math.max(0, ...columns.map((c) => c[3].length));
  section.hidden = columns.length < 2 || rows < 2;
  if (section.hidden) return;
  const canvas = section.querySelector("canvas");
  canvas.width = columns.length;
  canvas.height = rows;
  canvas.style.height = Math.max(48, Math.min(256, rows * 10)) + "px";
  const context = canvas.getContext("2d"), image = context.createImageData(columns.length, rows);
  const shades = new Map();
  columns.forEach(([, , , times], x) => {
    const known = times.filter((t) => t > 0).sort((a, b) => a - b), usual = known[known.length >> 1] || 1;
    times.forEach((t, y) => {
      if (t <= 0) return;
      const key = Math.round(20 * t / usual);
      if (!shades.has(key)) shades.set(key, colourOfHeat(key / 20));
      image.data.set([...shades.get(key), 255], 4 * (y * columns.length + x));
    });
  });
  context.putImageData(image, 0, 0);
  const first = columns[0], last = columns[columns.length - 1];
  write("heat-ends", "from " + clock(first[0]) + ", step " + first[1] + ", to " + clock(last[0]) + ", step " + last[1] + "; rank 0 is at the top" +
    (last[2] > 1 ? "; a row is " + last[2] + " ranks, with the slowest of them" : ""));
}
function heatAt(event) {
  if (!heat?.length) return;
  const box = event.target.getBoundingClientRect();
  const column = heat[Math.min(heat.length - 1, Math.floor(heat.length * (event.clientX - box.left) / box.width))];
  const row = Math.min(event.target.height - 1, Math.floor(event.target.height * (event.clientY - box.top) / box.height));
  if (column[3][row] === undefined) return;
  event.target.title = "rank " + row * column[2] + (column[2] > 1 ? " and next" : "") + ", step " + column[1] + ", " + clock(column[0]) + ": " + short(column[3][row]) + " ms";
}

// ---- files -------------------------------------------------------------------------------------

let logRank = 0, filesAt = 0, filesTimer = 0, filesOf = "", failureShown = "";
const FILES_MS = 4000, SELDOM_MS = 15000;
function showLines(holder, lines, note) {
  const end = holder.scrollTop + holder.clientHeight >= holder.scrollHeight - 8;
  const text = lines.length ? lines.join("\n") : note;
  if (holder.textContent === text) return;
  holder.textContent = text;
  if (end) holder.scrollTop = holder.scrollHeight;
}
async function linesOf(key, rank, count) {
  try {
    return (await get("/api/log?id=" + key + "&rank=" + rank + "&lines=" + count)).lines;
  } catch (error) {
    return error.message;
  }
}
async function showLog(key) {
  const holder = document.getElementById("log");
  if (!holder || !holder.closest("details").open) return;
  const lines = await linesOf(key, logRank, 200);
  if (filesOf === key && document.contains(holder)) showLines(holder, Array.isArray(lines) ? lines : [], Array.isArray(lines) ? "(empty)" : lines);
}
function showCheckpoints(files) {
  const rows = files.checkpoints;
  const job = shownJob, newest = rows.find((row) => row[1] === job?.checkpoint_step);
  renew(document.getElementById("checkpoints"), files.problem ? make("p.warn", {}, files.problem) : null,
    rows.length === 0 ? make("p.dim", {}, "none") : rankTable("Checkpoints", rows, [["STEP", 1], ["GENERATION", 1], ["WRITTEN"], ["NAME"]],
      ([name, step, generation, at]) => [String(step), String(generation), at ? new Date(at).toLocaleString("en-GB") : "–", name + (newest && newest[0] === name ? " (newest durable)" : "")]),
    files.left_out ? make("p.dim", {}, files.left_out + " older ones are left out; hpctl checkpoint ls has them") : null,
    files.directory ? make("p.dim.path", {}, files.directory) : null);
  const file = document.getElementById("job-file");
  if (file.textContent !== files.job_file) file.textContent = files.job_file;
}
// A job that failed opens with its exception and the last lines of the rank that it is about.
async function showFailure(job) {
  const section = document.getElementById("failure");
  if (!section) return;
  section.hidden = job.state !== "FAILED" && job.state !== "TIMEOUT";
  if (section.hidden || !story || failureShown === historyOf) return;
  failureShown = historyOf;
  const told = [...story.why].reverse().find((e) => e.rank >= 0);
  let rank = told ? told.rank : 0;
  let lines = await linesOf(job.key, rank, 20);
  if (lines.length === 0 && rank !== 0) lines = await linesOf(job.key, rank = 0, 20);
  if (filesOf !== job.key) return;
  if (!Array.isArray(lines)) failureShown = "";  // and is asked for again
  section.replaceChildren(make("h2", {}, "Why it failed"), make("pre.exception", {}, told?.cause || job.reason),
    make("h3", {}, "The last lines of rank " + rank), make("pre.lines", {tabindex: "0"}, Array.isArray(lines) ? lines.join("\n") : lines));
  const last = section.querySelector(".lines");
  last.scrollTop = last.scrollHeight;
}
async function askFiles() {
  clearTimeout(filesTimer);
  const key = filesOf, job = shownJob;
  if (!key || !job || fleet) return;
  // The last lines of a file on a file server may be seen later than what the controller says.
  if (!job.plots) await Plots.load(Plots.series()?.last_step < job.step, [job.step, job.state, job.generation].join("|"));
  if (key !== filesOf) return;
  try {
    const columns = !heat || !job.ended_ms ? (await get("/api/heat?id=" + key)).columns : null;
    if (key !== filesOf) return;
    if (columns) showHeat(columns);
    await showFailure(job);
    await showLog(key);
    if (key === filesOf && performance.now() - filesAt > SELDOM_MS) {
      const files = await get("/api/files?id=" + key);
      if (key !== filesOf) return;
      filesAt = performance.now();
      showCheckpoints(files);
    }
  } catch (error) {
    if (error.ended) return;
  }
  clearTimeout(filesTimer);
  if (key === filesOf && !document.hidden) filesTimer = setTimeout(askFiles, FILES_MS);
}

// The figures that both pages have, and what is found.
function showHead(job, more) {
  document.title = job.name + " " + job.state + " – hpctl";
  write("title", "job " + job.job);
  say([job.key, job.state, job.generation, ...job.findings.map((f) => f[0] + f[2] + f[3])].join("|"),
    [job.name + " is " + job.state + ", generation " + job.generation, ...job.findings.map(findingText)].join("; "));
  const figures = [["step", job.step || job.steps ? job.steps ? job.step + " / " + job.steps : String(job.step) : "–"],
    ["ETA", job.eta_ms === null || job.eta_ms === undefined ? "–" : shortDuration(job.eta_ms)],
    ["tokens/s", job.tokens_per_second > 0 ? short(job.tokens_per_second) : "–"], ["goodput", percent(job.goodput)],
    ["generation", String(job.generation)], ["faults, restarts", job.faults + ", " + job.restarts], ...more,
    ["age", age(job, job.now_ms)]];
  renew(document.getElementById("head"),
    make("h2", {}, job.name + " ", badge(job.state), make("span.dim", {}, "  " + reasonOf(job))),
    ...job.findings.map((f) => make("div.finding." + moodOf(f), {}, findingText(f) + " (since " + clock(f[3]) + ")")),
    job.steps ? make("progress.whole", {max: job.steps, value: Math.min(job.step, job.steps), "aria-hidden": "true"}) : null,
    make("dl.figures", {}, ...figures.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))));
}

function makeJobPage(job) {
  const rank = make("input", {id: "log-rank", type: "number", min: 0, value: logRank,
    change: () => { logRank = Math.max(0, Math.floor(Number(rank.value)) || 0); showLog(filesOf); }});
  main.replaceChildren(make("section", {id: "head"}), make("section", {id: "failure", "aria-label": "Why it failed", hidden: ""}),
    Plots.open(job.key, () => { showTimeline(); if (shownJob) showJob(shownJob); }),
    make("div.pair", {}, make("section", {"aria-label": "Time"}, make("h2", {}, "Where the time went"), make("div", {id: "timeline"}), make("div", {id: "time"})),
      make("section", {"aria-label": "Why"}, make("h2", {}, "Why"), make("div", {id: "why"}))),
    make("div.pair", {}, make("section", {"aria-label": "Nodes"}, make("h2", {}, "Nodes"), make("div", {id: "node-words"}),
      make("div.grid", {id: "node-grid", "aria-hidden": "true"}), make("div", {id: "node-notes"})), makeRanks()),
    make("section", {id: "heat", "aria-label": "Step times over time", hidden: ""}, make("h2", {}, "Step time of each rank over time"),
      make("canvas", {"aria-hidden": "true", mousemove: heatAt}), make("div.dim", {id: "heat-ends"}),
      make("div.dim", {}, "The stronger the colour, the longer a rank's own part of a step, relative to the median rank at that time. Times from before this controller started are not kept.")),
    make("section", {"aria-label": "Checkpoints"}, make("h2", {}, "Checkpoints"), make("div.scroll.short", {id: "checkpoints", tabindex: "0"})),
    make("section", {"aria-label": "Log"}, make("details", {open: "", toggle: () => showLog(filesOf)}, make("summary", {}, "Log"),
      make("div.tools", {}, make("label", {for: "log-rank"}, "Rank"), rank, make("span.dim", {}, "the last 200 lines; hpctl logs has all")),
      make("pre.lines", {id: "log", tabindex: "0"}))),
    make("section", {"aria-label": "Job file"}, make("details", {}, make("summary", {}, "Job file"), make("p.dim", {}, "with every key; values of env.set and notify.webhook are not shown"),
      make("pre.lines", {id: "job-file", tabindex: "0"}))),
    make("section", {"aria-label": "Events"}, make("details", {}, make("summary", {id: "events-count"}, "Events"),
      make("div.scroll", {id: "events", tabindex: "0"}))));
}
function showJob(job) {
  shownJob = job;
  if (!document.getElementById("why")) {
    makeJobPage(job);
    filesOf = job.key;
    filesAt = -Infinity;
    heat = null;
    failureShown = "";
    showHistory();
    const steps = /^(\d+)-(\d+)$/.exec(inLink().get("steps") || "");
    if (steps) Plots.zoom([Number(steps[1]), Number(steps[2])]);
    setTimeout(askFiles);
  }
  const validation = Plots.series()?.newest?.validation_loss;
  showHead(job, [["loss", loss(job.loss)], ...(validation ? [["validation, step " + validation[0], loss(validation[1])]] : []),
    ...(job.mfu > 0 ? [["MFU", (100 * job.mfu).toFixed(1) + " %"]] : []), ["checkpoint", job.checkpoint_step ? "step " + job.checkpoint_step : "none"]]);
  if (job.plots) Plots.showKept(job.plots);
  showNodes(job);
  showRanks(job);
  showTimeline();
  renew(document.getElementById("time"), timeTable(job));
}

// At the cluster controller: the summary, and the words that lead to the rest.
function showFleetJob(job) {
  if (!document.getElementById("commands")) {
    main.replaceChildren(make("section", {id: "head"}),
      make("section", {"aria-label": "More"}, make("h2", {}, "More of it, in a terminal"), make("dl", {id: "commands"})),
      make("div.pair", {}, make("section", {"aria-label": "Nodes"}, make("h2", {}, "Nodes"), make("div", {id: "nodes"})), make("div", {id: "time"})));
  }
  showHead(job, [["user", job.user], ["ranks", String(job.ranks)],
    ["said", job.ended_ms ? "how it ended" : duration(job.heard_ms) + " ago"], ["last fault", job.last_fault || "none"]]);
  renew(document.getElementById("commands"), ...job.commands.flatMap(([words, what]) => [make("dt", {}, make("code", {}, words)), make("dd", {}, what)]));
  showFleetNodes(job.node_rows, [job], job.lemons);
  renew(document.getElementById("time"), showTime(job));
}

// ---- asking ------------------------------------------------------------------------------------

let latest = null, timer = 0, round = 0, historyOf = "", fleet = false;
async function get(path) {
  const response = await fetch(path, {cache: "no-store"});
  if (response.ok) return response.json();
  const error = new Error(response.status === 401 ? "the session has ended: run hpctl open" + (fleet ? " -A" : "") + " again" : (await response.text()).trim());
  error.ended = response.status === 401;
  throw error;
}
// What the address says after its #.
const inLink = () => new URLSearchParams(location.hash.slice(1));
// The address leads to what is shown, so that it can be sent to others.
function keepLink() {
  const words = new URLSearchParams();
  if (filter) words.set("show", filter);
  if (sortBy !== "job" || !descending) words.set("sort", (descending ? "-" : "") + sortBy);
  history.replaceState(null, "", "#" + words);
}
function followLink() {
  const link = inLink(), sort = link.get("sort") || "-job", key = sort.replace(/^-/, "");
  filter = link.get("show") || "";
  if (columns.some((c) => c[0] === key)) [sortBy, descending] = [key, sort.startsWith("-")];
}
async function ask() {
  clearTimeout(timer);
  const mine = ++round;
  const job = /^[\d.]+$/.exec(inLink().get("job") || "")?.[0];
  let next = POLL_MS;
  const begun = performance.now();
  try {
    if (job) {
      const data = await get("/api/job?id=" + job);
      if (mine !== round) return;
      fleet = data.fleet === true;
      (fleet ? showFleetJob : showJob)(data);
      const now = fleet ? "" : [job, data.state, data.generation, data.faults, data.restarts, data.reason, data.checkpoint_step, data.node_rows.map((r) => r.slice(0, 3)).join(";")].join("|");
      if (now !== historyOf) {
        const told = await get("/api/events?id=" + job);
        if (mine !== round) return;
        story = told;
        historyOf = now;
        showHistory();
      }
    } else {
      const data = await get("/api/jobs");
      if (mine !== round) return;
      historyOf = "";
      fleet = data.fleet === true;
      showJobs(data);
    }
    if (performance.getEntriesByName("shown").length === 0) performance.mark("shown");
    write("health", "");
    write("clock", "as of " + clock(Date.now()));
    next += 10 * (performance.now() - begun);
  } catch (error) {
    if (mine !== round) return;
    write("health", error.message === "Failed to fetch" ? "the controller does not answer; asking again" : error.message);
    if (error.ended) return;
    next = 3 * POLL_MS;
  }
  if (!document.hidden) timer = setTimeout(ask, next);
}
function begin() {
  Plots.close();
  main.replaceChildren();
  story = shownJob = ranked = heat = null;
  historyOf = filesOf = "";
  if (!inLink().has("job")) followLink();
  ask();
}
addEventListener("hashchange", begin);
document.addEventListener("visibilitychange", () => { if (!document.hidden) { ask(); askFiles(); } });
begin();
