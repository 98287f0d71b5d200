// Plots of one queue. They ask for new points while the page is open.

import { showConsumers } from "./consumers.js";
import { showScope } from "./servers.js";
import { write } from "./texts.js";
import { writeWithTimes } from "./times.js";

const SECONDS_BETWEEN = 5;
const COLOURS = ["--series-1", "--series-2", "--series-3", "--series-4"];
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A value between gaps makes no line, so it is drawn as a point.
function alone(plot, series) {
  const values = plot.data[series];
  return [...values.keys()].filter((at) => values[at] != null && values[at - 1] == null && values[at + 1] == null);
}

function draw(box, times, series) {
  const names = Object.keys(series);
  const axis = { stroke: colour("--ink-soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const options = {
    width: box.clientWidth,
    height: 200,
    scales: { y: { range: (plot, low, high) => [0, Math.max(high * 1.05, 1)] } },
    axes: [{ ...axis }, { ...axis, size: 56 }],
    legend: { show: false },
    series: [{}, ...names.map((name, index) => ({ label: name, stroke: colour(COLOURS[index]), width: 2, dash: DASHES[index], points: { show: false, filter: alone, size: 7, fill: colour(COLOURS[index]) } }))],
  };
  box.replaceChildren();
  const plot = new uPlot(options, [times, ...names.map((name) => series[name])], box);
  addLegend(box, plot, names);
  return plot;
}

// The legend of a plot: the stroke of each line, its name, and its value at the pointer, else the newest one.
function addLegend(box, plot, names) {
  const list = document.createElement("ul");
  list.className = "legend";
  const values = names.map((name, index) => {
    const [entry, value] = [document.createElement("li"), document.createElement("b")];
    entry.innerHTML = `<svg class="swatch" viewBox="0 0 24 4" aria-hidden="true"><path class="series-${index + 1}" d="M0 2L24 2"/></svg>`;
    entry.append(` ${name} `, value);
    list.append(entry);
    return value;
  });
  const update = () => {
    const at = plot.cursor.idx ?? plot.data[0].length - 1;
    values.forEach((value, index) => write(value, textOf(plot.data[index + 1][at])));
  };
  for (const hook of ["setCursor", "setData"]) (plot.hooks[hook] ??= []).push(update);
  box.parentElement.querySelector(".legend")?.remove();
  box.after(list);
  update();
}

function textOf(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: 2 });
}

function showFigures({ counts, attention, explanation }) {
  for (const [name, text] of Object.entries(counts)) write(document.querySelector(`[data-count="${name}"]`), text);
  const banner = document.querySelector("[data-attention-reason]");
  write(banner, attention);
  banner.hidden = !attention;
  writeWithTimes(document.querySelector("[data-explanation]"), explanation);
}

function start(root) {
  let points = JSON.parse(root.dataset.points);
  const boxes = [...root.querySelectorAll("[data-plot]")];
  let plots = [];
  const redraw = () => (plots = boxes.map((box) => draw(box, points[box.dataset.times ?? "times"], points[box.dataset.plot])));
  redraw();
  addEventListener("resize", () => plots.forEach((plot, index) => plot.setSize({ width: boxes[index].clientWidth, height: 200 })));
  document.addEventListener("theme", redraw);
  setInterval(async () => {
    if (document.hidden) return;
    const answer = await fetch(root.dataset.plots).catch(() => null);
    document.querySelector("[data-connection]").hidden = answer !== null;
    if (!answer?.ok) return;
    const { scope, figures, consumers, ...newer } = await answer.json();
    showScope(scope);
    showFigures(figures);
    showConsumers(consumers);
    points = { ...points, ...newer };
    plots.forEach((plot, index) => {
      const series = newer[boxes[index].dataset.plot];
      if (series) plot.setData([newer.times, ...Object.values(series)]);
    });
  }, SECONDS_BETWEEN * 1000);
}

for (const root of document.querySelectorAll("[data-plots]")) start(root);
