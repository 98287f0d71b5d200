// Keeps the plots of all queues up to date. The server draws them; this writes their new shapes and texts.
import { write } from "./texts.js";
import { showTime } from "./times.js";

export function showOverall(plots) {
  const box = document.querySelector("[data-overall]");
  if (!box) return;
  write(box.querySelector("[data-sentence]"), plots.sentence);
  const note = box.querySelector("[data-plot-note]");
  write(note, plots.note);
  note.hidden = !plots.note;
  for (const line of [...plots.lines, plots.waiting]) {
    box.querySelector(`[data-line="${line.name}"]`).setAttribute("d", line.path);
    write(box.querySelector(`[data-amount="${line.name}"]`), line.amount);
  }
  write(box.querySelector('[data-highest="rate"]'), plots.highest_rate);
  write(box.querySelector('[data-highest="waiting"]'), plots.highest_waiting);
  for (const time of box.querySelectorAll("[data-begin]")) showTime(time, plots.begin, plots.begin_text);
  for (const time of box.querySelectorAll("[data-end]")) showTime(time, plots.end, plots.end_text);
}
