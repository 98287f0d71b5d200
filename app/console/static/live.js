// Keeps the rows of the overview up to date by server-sent events. Only cells whose text has changed are written.
import { root } from "./root.js";
import { showOverall } from "./overall.js";
import { LiveRows } from "./rows.js";
import { showScope, showServers } from "./servers.js";
import { write } from "./texts.js";

const RETRY_MS = 5000;

export function followRows(table) {
  const rows = new LiveRows(table);
  let lastAt = Date.now();
  follow((data) => {
    lastAt = data.at;
    requestAnimationFrame(() => show(data, rows));
  }, (isConnected) => showConnection(isConnected ? null : lastAt), table.dataset.live);
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
function follow(onData, onConnection, query = "") {
  let events;
  const connect = () => {
    events = new EventSource(`${root}/console/live${query}`);
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

function show(data, rows) {
  showHealth("store", data.store);
  showHealth("lock_store", data.lock_store);
  showScope(data.scope);
  showServers(data.servers);
  for (const mark of document.querySelectorAll("[data-store-away], [data-old]")) mark.hidden = data.store !== "away";
  if (data.age) write(document.querySelector("[data-age]"), data.age);
  if (!data.rows) return;
  for (const [name, value] of Object.entries(data.totals)) write(document.querySelector(`[data-total="${name}"]`), value);
  showOverall(data.plots);
  const attentionCount = document.querySelector("[data-attention-count]");
  write(attentionCount, data.attention_count);
  attentionCount.hidden = !data.attention_count;
  rows.show(data);
  // A reader who has typed a text sees the rows of this page that have it, and their number.
  const find = document.querySelector("[data-find]");
  if (find.value === find.defaultValue) write(document.querySelector("[data-found]"), data.found);
  else find.dispatchEvent(new Event("input"));
}

function showHealth(name, state) {
  const mark = document.querySelector(`[data-health="${name}"]`);
  if (mark && mark.dataset.state !== state) mark.dataset.state = state;
}
