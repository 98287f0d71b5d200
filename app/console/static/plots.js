// Plots of one queue. They ask for new points while the page is open.

import { showScope } from "./servers.js";

const SECONDS_BETWEEN = 5;
const COLOURS = ["--series-1", "--series-2", "--series-3", "--series-4"];
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw(box, times, series) {
  const names = Object.keys(series);
  const axis = { stroke: colour("--ink-soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const options = {
    width: box.clientWidth,
    height: 200,
    scales: { y: { range: (plot, low, high) => [0, Math.max(high * 1.05, 1)] } },
    axes: [{ ...axis }, { ...axis, size: 56 }],
    series: [{}, ...names.map((name, index) => ({ label: name, stroke: colour(COLOURS[index]), width: 2, dash: DASHES[index], points: { show: false } }))],
  };
  box.replaceChildren();
  return new uPlot(options, [times, ...names.map((name) => series[name])], box);
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
    const { scope, ...newer } = await answer.json();
    showScope(scope);
    points = { ...points, ...newer };
    plots.forEach((plot, index) => {
      const series = newer[boxes[index].dataset.plot];
      if (series) plot.setData([newer.times, ...Object.values(series)]);
    });
  }, SECONDS_BETWEEN * 1000);
}

for (const root of document.querySelectorAll("[data-plots]")) start(root);
