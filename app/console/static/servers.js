// Keeps the list of servers up to date, and the sentence that says which figures are those of one server alone.
import { showLocalTimes } from "./times.js";

export function showScope(text) {
  const note = document.querySelector("[data-scope]");
  if (note) showIfAny(note, text);
}

export function showServers({ line, warning, rows }) {
  const box = document.querySelector("[data-servers]");
  box.hidden = !rows.length;
  write(box.querySelector("[data-line]"), line);
  showIfAny(box.querySelector("summary [data-warning]"), warning);
  const body = box.querySelector("tbody");
  const before = new Map([...body.rows].map((row) => [row.dataset.server, row]));
  const shown = rows.map((server) => showServer(before.get(server.id) ?? newRow(box, server), server));
  if (shown.length !== body.rows.length || shown.some((row, index) => body.rows[index] !== row)) body.replaceChildren(...shown);
}

function newRow(box, server) {
  const row = box.querySelector("template").content.firstElementChild.cloneNode(true);
  row.dataset.server = server.id;
  write(row.querySelector("[data-host]"), server.host);
  write(row.querySelector("[data-process]"), String(server.process));
  row.querySelector("[data-this]").hidden = !server.is_this;
  const since = row.querySelector("time");
  since.dateTime = server.since;
  since.textContent = server.since_text;
  showLocalTimes(row);
  return row;
}

function showServer(row, server) {
  write(row.querySelector(".why"), server.warning);
  write(row.cells[1], server.version);
  write(row.cells[3], server.age);
  return row;
}

function showIfAny(element, text) {
  write(element, text);
  element.hidden = !text;
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
