// SPDX-License-Identifier: Apache-2.0
// The plots of one job, drawn by uPlot from the answers of /api/series (docs/status-page.md). All
// plots share one range of steps: dragging in one zooms all, a double click shows the whole job. A
// zoom asks for the series again, with as many points for fewer steps. Lines show the mean of the
// steps of a point; a band shows the least and the greatest value, so a spike of one step is seen.
"use strict";
const Plots = (() => {
  const POINTS = 400;
  const GIB = 1024 ** 3;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // [key, title, unit of the head, lines: [column, label, colour, scale], begins at zero]
  const CHARTS = [
    ["loss", "Loss", (v) => number(v, 4), [["loss", "training", "--accent", 1],
      ["validation_loss", "validation", "--second", 1], ["test_loss", "test", "--third", 1]], false],
    ["rate", "Tokens per second", (v) => short(v), [["tokens_per_s", "tokens/s", "--accent", 1]], true],
    ["mfu", "MFU", (v) => number(v, 1) + " %", [["mfu", "MFU", "--accent", 100]], true],
    ["tflops", "TFLOP/s per worker", (v) => number(v, 2), [["tflops", "TFLOP/s", "--accent", 1]], true],
    ["grad", "Gradient norm", (v) => number(v, 3), [["grad_norm", "gradient norm", "--accent", 1]], false],
    ["lr", "Learning rate", (v) => v.toExponential(2), [["lr", "learning rate", "--accent", 1]], true],
    ["memory", "Memory of rank 0, GiB", (v) => number(v, 2), [["peak_memory_bytes", "peak", "--accent", 1 / GIB]], true],
    ["times", "Step time, ms", (v) => number(v, 1), [["step_ms", "step", "--accent", 1], ["comm_ms", "communication", "--second", 1],
      ["data_ms", "data", "--third", 1], ["save_ms", "save", "--idle", 1]], true],
  ];
  const number = (v, digits) => v.toLocaleString("en", {maximumFractionDigits: digits});
  // Round numbers, so that no digit says nothing.
  const tick = (v) => Math.abs(v) >= 1e6 ? v / 1e6 + "M" : Math.abs(v) >= 1000 ? v / 1000 + "k" : String(Number(v.toPrecision(6)));
  let job = "", charts = new Map(), series = null, marks = [], range = null, asking = null;
  let smoothing = 0, logScale = false, root = null, note = null, asked = "", failed = false, whole = null, dragged = 0;

  const wanted = () => "/api/series?id=" + job + "&points=" + POINTS + (range ? "&from=" + range[0] + "&to=" + range[1] : "");

  // An exponential moving average that begins at the first value.
  function smooth(values) {
    if (smoothing === 0) return values;
    let average = null;
    return values.map((value) => {
      if (value === null) return null;
      average = average === null ? value : smoothing * average + (1 - smoothing) * value;
      return average;
    });
  }
  const scaled = (values, by) => values.map((value) => value === null ? null : value * by);
  const positive = (values) => logScale ? values.map((value) => value > 0 ? value : null) : values;

  // What uPlot wants: the steps, then of each line its mean, and its least and greatest values.
  function dataOf(lines) {
    const data = [series.last];
    for (const [column, , , by] of lines) {
      const c = series.columns[column];
      data.push(positive(smooth(scaled(c.v, by))), positive(scaled(c.low || c.v, by)), positive(scaled(c.high || c.v, by)));
    }
    return data;
  }
  const present = (lines) => lines.filter(([column]) => series.columns[column]);

  function drawMarks(plot) {
    const {ctx, bbox} = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    const line = (step, style, dash, height) => {
      const x = Math.round(plot.valToPos(step, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) return;
      ctx.strokeStyle = style;
      ctx.setLineDash(dash);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top + bbox.height - height);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    };
    for (const [generation, step] of series.generations) if (generation > 1) line(step, colour("--idle"), [4, 4], bbox.height);
    for (const [kind, , step] of marks) {
      if (kind === "fault") line(step, colour("--bad-fill"), [], bbox.height);
      else line(step, colour("--good-fill"), [], 8 * devicePixelRatio);
    }
    ctx.restore();
  }

  // Faults, checkpoints and generations within the point that the cursor is at.
  function marksAt(first, last) {
    const near = marks.filter(([, , step]) => step >= first && step <= last)
      .map(([kind, , step, text]) => (kind === "fault" ? "fault at step " + step + ": " : "checkpoint ") + text);
    for (const [generation, step] of series.generations) if (step >= first && step <= last) near.push("generation " + generation + " begins");
    return near.slice(0, 4).join("; ");
  }
  function showCursor(chart, index) {
    if (index === null || index === undefined || !series || index >= series.first.length) {
      chart.words.textContent = chart.latest;
      return;
    }
    const first = series.first[index], last = series.last[index];
    const values = chart.lines.map(([column, label, , by]) => {
      const c = series.columns[column];
      if (c.v[index] === null) return "";
      const range = c.low && c.low[index] !== c.high[index]
        ? " (" + chart.format(c.low[index] * by) + " to " + chart.format(c.high[index] * by) + ")" : "";
      return (chart.lines.length > 1 ? label + " " : "") + chart.format(c.v[index] * by) + range;
    }).filter(Boolean);
    chart.words.textContent = "step " + (first === last ? last : first + " to " + last) + ": " +
      [values.join(", "), marksAt(first, last)].filter(Boolean).join("; ");
  }
  function lastOf(values) {
    for (let i = values.length - 1; i >= 0; --i) if (values[i] !== null) return values[i];
    return null;
  }

  function makeChart(key, title, format, lines, fromZero) {
    const words = make("span.value");
    const holder = make("div.chart", {role: "img", "aria-label": title});
    const figure = make("figure", {"data-chart": key}, make("figcaption", {}, make("span", {}, title), words), holder);
    const chart = {figure, words, format, lines, latest: "", plot: null};
    const axis = {stroke: colour("--dim"), grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line"), width: 1},
      font: "11px system-ui, sans-serif"};
    const mean = ([, label, shade]) => ({label, stroke: colour(shade), width: 1.5, spanGaps: true, points: {show: label !== "training" && lines.length > 1 && key === "loss", size: 5}});
    const edge = (shade) => ({stroke: colour(shade) + "70", width: 1, spanGaps: true, points: {show: false}});
    chart.plot = new uPlot({
      width: 300, height: 170, legend: {show: false}, padding: [8, 18, 0, 0],
      cursor: {sync: {key: "steps", setSeries: false}, drag: {x: true, y: false, setScale: false}, y: false},
      scales: {x: {time: false}, y: {distr: logScale ? 3 : 1, range: logScale ? undefined
        : (_, low, high) => low === null ? [0, 1] : fromZero ? [0, high > 0 ? 1.08 * high : 1]
          : high > low ? [low - 0.06 * (high - low), high + 0.06 * (high - low)] : [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)]}},
      axes: [{...axis, size: 28, space: 60, values: (_, ticks) => ticks.map((v) => Number.isInteger(v) ? tick(v) : "")},
        {...axis, size: 52, space: 28, values: (_, ticks) => ticks.map((v) => v === null ? "" : key === "lr" ? (v === 0 ? "0" : v.toExponential(0)) : tick(v))}],
      series: [{}, ...lines.flatMap((l) => [mean(l), edge(l[2]), edge(l[2])])],
      bands: lines.map((l, i) => ({series: [3 * i + 3, 3 * i + 2], fill: colour(l[2]) + "38"})),
      hooks: {
        draw: [(plot) => drawMarks(plot)],
        setCursor: [(plot) => showCursor(chart, plot.cursor.idx)],
        setSelect: [(plot) => {
          if (plot.select.width < 4) return;
          const from = Math.max(0, Math.floor(plot.posToVal(plot.select.left, "x")));
          const to = Math.ceil(plot.posToVal(plot.select.left + plot.select.width, "x"));
          plot.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
          // All plots tell of a drag, because they share the cursor; that in which it was comes first.
          dragged = dragged || setTimeout(() => {
            dragged = 0;
            zoom(to > from ? [from, to] : null);
          });
        }],
      },
    }, dataOf(lines), holder);
    chart.plot.over.addEventListener("dblclick", () => zoom(null));
    return chart;
  }

  function fit() {
    for (const chart of charts.values()) {
      const width = chart.figure.querySelector(".chart").clientWidth;
      if (width > 0 && width !== chart.plot.width) chart.plot.setSize({width, height: 170});
    }
  }
  function draw(anew) {
    if (!root || !series) return;
    if (anew) clearCharts();
    const holder = root.querySelector(".plots");
    const empty = series.first.length === 0;
    note.textContent = failed ? note.textContent : empty ? (series.complete ? "No step is complete yet." : "The history is being read.")
      : series.complete ? "" : "The history is being read: " + Math.round(100 * series.read_bytes / (series.size || 1)) + " %";
    if (empty) return;
    for (const [key, title, format, all, fromZero] of CHARTS) {
      const lines = present(all);
      if (key === "tflops" && series.columns.mfu) continue;
      let chart = charts.get(key);
      if (chart && chart.lines.length !== lines.length) {
        chart.plot.destroy();
        chart.figure.remove();
        charts.delete(key);
        chart = null;
      }
      if (lines.length === 0) continue;
      if (!chart) {
        chart = makeChart(key, title, format, lines, fromZero);
        charts.set(key, chart);
        const next = CHARTS.slice(CHARTS.findIndex((c) => c[0] === key) + 1).map((c) => charts.get(c[0])).find(Boolean);
        holder.insertBefore(chart.figure, next ? next.figure : null);
      } else {
        chart.plot.setData(dataOf(lines));
      }
      chart.latest = lines.map(([column, label, , by]) => {
        const value = series.newest?.[column]?.[1] ?? lastOf(series.columns[column].v);
        return value === null ? "" : (lines.length > 1 ? label + " " : "") + format(value * by);
      }).filter(Boolean).join(", ");
      chart.words.textContent = chart.latest;
      chart.figure.querySelector(".chart").setAttribute("aria-label", title + ", newest: " + chart.latest);
    }
    fit();
  }
  function clearCharts() {
    for (const chart of charts.values()) {
      chart.plot.destroy();
      chart.figure.remove();
    }
    charts = new Map();
  }
  function zoom(to) {
    if (!root) return;
    range = to;
    root.querySelector("[data-whole]").hidden = !range;
    const link = new URLSearchParams(location.hash.slice(1));
    if (range) link.set("steps", range.join("-"));
    else link.delete("steps");
    history.replaceState(null, "", "#" + link);
    load(true);
  }

  // Asks for the series where it is another than the one that is shown. `state` is what it depends on.
  async function load(always, state = asked) {
    if (!job || (!always && !failed && state === asked && series?.complete)) return;
    const mine = asking = {};
    try {
      const answer = await get(wanted());
      if (mine !== asking) return;
      failed = false;
      note.textContent = "";
      asked = state;
      series = answer;
      if (!range) whole = answer;
      draw(false);
      onSeries(series);
    } catch (error) {
      if (mine !== asking) return;
      failed = true;
      note.textContent = error.message;
    }
  }
  let onSeries = () => {};

  // The section of a job; `whenLoaded(series)` is called after each answer.
  function open(key, whenLoaded) {
    close();
    job = key;
    onSeries = whenLoaded;
    note = make("span.dim", {id: "plots-note"});
    const slider = make("input", {type: "range", min: 0, max: 0.98, step: 0.02, value: smoothing, "aria-label": "Smoothing",
      input: () => { smoothing = Number(slider.value); draw(false); }});
    const scale = make("input", {type: "checkbox", change: () => { logScale = scale.checked; draw(true); }});
    scale.checked = logScale;
    const whole = make("button", {type: "button", "data-whole": "", hidden: "", click: () => zoom(null)}, "All steps");
    root = make("section", {id: "plots", "aria-label": "Plots"},
      make("div.tools", {}, make("h2", {}, "Training"), make("label", {}, "Smoothing ", slider), make("label", {}, scale, " Log scale"),
        whole, make("span.legend", {}, make("span", {}, make("i.key.fault"), "fault"), make("span", {}, make("i.key.generation"), "generation"),
          make("span", {}, make("i.key.saved"), "checkpoint")), note),
      make("div.plots"));
    return root;
  }
  function close() {
    clearCharts();
    job = "";
    series = whole = null;
    asking = null;
    asked = "";
    range = null;
    marks = [];
    root = null;
    failed = false;
  }
  // A command has no metrics.jsonl: what its controller has kept is shown instead.
  function showKept(plots) {
    if (!root || !plots) return;
    // By step: a restart goes back some, and a long one has many samples. The newest counts.
    const kept = [];
    plots.step.forEach((step, i) => {
      while (kept.length && plots.step[kept[kept.length - 1]] >= step) kept.pop();
      kept.push(i);
    });
    const of = (column) => kept.map((i) => column[i]), steps = of(plots.step);
    series = {first: steps, last: steps, generations: [], complete: true,
      columns: {loss: {v: of(plots.loss)}, tokens_per_s: {v: of(plots.tokens_per_second)}}};
    for (const [name, column] of Object.entries(series.columns)) if (!column.v.some((v) => v)) delete series.columns[name];
    draw(false);
  }
  function setMarks(list) {
    marks = list;
    for (const chart of charts.values()) chart.plot.redraw(false);
  }
  addEventListener("resize", fit);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
  return {open, close, load, setMarks, showKept, series: () => series, whole: () => whole, zoom};
})();
