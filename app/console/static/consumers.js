// Keeps the consumers of a queue up to date.

import { write } from "./texts.js";
import { showLocalTimes, showTime } from "./times.js";

export function showConsumers({ note, rows }) {
  const box = document.querySelector("[data-consumers]");
  const about = box.querySelector("[data-note]");
  write(about, note);
  about.hidden = !note;
  box.querySelector(".table-box").hidden = !rows.length;
  const body = box.querySelector("tbody");
  const before = new Map([...body.rows].map((row) => [row.dataset.consumer, row]));
  const shown = rows.map((consumer) => showConsumer(before.get(consumer.id) ?? newRow(box, consumer), consumer));
  if (shown.length !== body.rows.length || shown.some((row, index) => body.rows[index] !== row)) body.replaceChildren(...shown);
}

function newRow(box, consumer) {
  const row = box.querySelector("template").content.firstElementChild.cloneNode(true);
  row.dataset.consumer = consumer.id;
  write(row.querySelector("[data-name]"), consumer.name);
  write(row.querySelector("[data-principal]"), consumer.principal);
  return row;
}

function showConsumer(row, consumer) {
  write(row.querySelector("[data-target]"), consumer.target);
  const tag = row.querySelector("[data-state]");
  tag.dataset.state = consumer.state;
  write(tag, consumer.state);
  write(row.querySelector(".why"), consumer.reason);
  showMoment(row.querySelector("[data-since]"), consumer.since, consumer.since_text);
  showMoment(row.querySelector("[data-reported]"), consumer.reported, consumer.reported_text);
  showLocalTimes(row);
  return row;
}

function showMoment(time, iso, text) {
  if (time.title !== text) showTime(time, iso, text);
}
