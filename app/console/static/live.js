// Keeps the rows of the overview up to date by server-sent events. Only cells whose text has changed are written.
import { showScope, showServers } from "./servers.js";
import { drawSpark } from "./sparkline.js";

const SPARK = 1;
const SLICE_MS = 6;
// What a slice may take. The layout that follows it takes about as long.
const RETRY_MS = 5000;

export function followRows(table) {
  const rows = new Map([...table.querySelectorAll("tr[data-row]")].map((row) => [row.dataset.row, row]));
  const later = new Slices((name, cells) => showRow(rows.get(name), cells));
  let lastAt = Date.now();
  follow((data) => {
    lastAt = data.at;
    requestAnimationFrame(() => show(data, table, rows, later));
  }, (isConnected) => showConnection(isConnected ? null : lastAt));
}

// A page without a queue has no table yet. It is loaded again when the first queue exists.
export function awaitFirstQueue() {
  follow((data) => {
    showScope(data.scope);
    showServers(data.servers);
    if (Object.keys(data.rows ?? {}).length) location.reload();
  }, () => {});
}

// Opens the page again once the server answers it. Its address stays.
export function awaitAnswer() {
  setTimeout(async () => {
    const answer = await fetch(location.href).catch(() => null);
    if (answer && answer.status !== 503) location.reload();
    else awaitAnswer();
  }, RETRY_MS);
}

// Passes on each event, and whether the stream is connected. A browser asks again after a lost connection. It gives up after
// an answer that is no stream, as from a proxy without a server, so this function asks then.
function follow(onData, onConnection) {
  let events;
  const connect = () => {
    events = new EventSource("/console/live");
    events.addEventListener("rows", (event) => onData(JSON.parse(event.data)));
    events.addEventListener("open", () => onConnection(true));
    events.addEventListener("error", () => {
      onConnection(false);
      if (events.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
    });
  };
  connect();
  addEventListener("pagehide", () => events.close());
}

function showConnection(lastAt) {
  const banner = document.querySelector("[data-connection]");
  banner.hidden = lastAt === null;
  if (lastAt !== null) {
    banner.textContent = `No connection to the server. The figures are those of ${new Date(lastAt).toLocaleTimeString()}. Trying again.`;
  }
}

// Carries out work in slices, so that the page answers its reader meanwhile. Newer work of a name replaces older.
class Slices {
  #work = new Map();
  #carryOut;

  constructor(carryOut) {
    this.#carryOut = carryOut;
  }

  add(name, value) {
    if (!this.#work.size) setTimeout(() => this.#run());
    this.#work.delete(name);
    this.#work.set(name, value);
  }

  #run() {
    const end = performance.now() + SLICE_MS;
    for (const [name, value] of this.#work) {
      this.#work.delete(name);
      this.#carryOut(name, value);
      if (performance.now() >= end) break;
    }
    if (this.#work.size) setTimeout(() => this.#run());
  }
}

function show(data, table, rows, later) {
  showHealth("store", data.store);
  showHealth("lock_store", data.lock_store);
  showScope(data.scope);
  showServers(data.servers);
  for (const mark of document.querySelectorAll("[data-store-away], [data-old]")) mark.hidden = data.store !== "away";
  if (data.age) write(document.querySelector("[data-age]"), data.age);
  if (!data.rows) return;
  for (const [name, value] of Object.entries(data.totals)) write(document.querySelector(`[data-total="${name}"]`), value);
  for (const [name, cells] of Object.entries(data.rows)) {
    if (rows.has(name)) later.add(name, cells);
  }
  for (const name of data.gone) {
    rows.get(name)?.classList.add("gone");
  }
  const isNew = Object.keys(data.rows).some((name) => !rows.has(name));
  if (isNew && !document.querySelector("[data-find]")?.value) showNewRows(table, rows, data.rows);
}

function showRow(row, [concern, why, status, points, ...texts]) {
  if (row.dataset.concern !== concern) row.dataset.concern = concern;
  write(row.querySelector(".why"), why);
  const spark = row.cells[SPARK].firstElementChild;
  if (spark.dataset.points !== points) {
    spark.dataset.points = points;
    drawSpark(spark);
  }
  texts.forEach((text, index) => write(row.cells[SPARK + 1 + index], text));
}

function showNewRows(table, rows, changed) {
  const model = table.tBodies[0].rows[0];
  for (const [name, cells] of Object.entries(changed)) {
    if (rows.has(name)) continue;
    const row = model.cloneNode(true);
    row.classList.remove("gone");
    row.dataset.row = name;
    row.querySelector(".tag")?.remove();
    const link = row.querySelector("a");
    link.href = `/console/queues/${encodeURIComponent(name)}`;
    link.textContent = name;
    [...table.tBodies].at(-1).append(row);
    rows.set(name, row);
    showRow(row, cells);
  }
}

function showHealth(name, state) {
  const mark = document.querySelector(`[data-health="${name}"]`);
  if (mark && mark.dataset.state !== state) mark.dataset.state = state;
}

function write(element, text) {
  if (!element || element.textContent === text) return;
  element.textContent = text;
  if (element.tagName === "TD") element.classList.toggle("none", text === "0" || text === "–");
}
