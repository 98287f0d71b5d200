// What every page does: times in the zone of the reader, theme, keyboard, dialogs, copies.
import { countSelected } from "./selection.js";
import { followPolicy } from "./delays.js";
import { sendForms } from "./forms.js";
import { awaitAnswer, awaitFirstQueue, followRows } from "./live.js";
import { root } from "./root.js";
import { drawSparks } from "./sparkline.js";
import { showLocalTimes } from "./times.js";

function switchTheme() {
  const page = document.documentElement;
  const isDark = page.dataset.theme ? page.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  page.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", page.dataset.theme);
  drawSparks(document);
  document.dispatchEvent(new Event("theme"));
}

function open(dialog) {
  document.getElementById(dialog).showModal();
}

async function copy(button) {
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = label), 1500);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.confirm && !confirm(button.dataset.confirm)) event.preventDefault();
  if ("themeSwitch" in button.dataset) switchTheme();
  else if (button.dataset.dialog) open(button.dataset.dialog);
  else if (button.dataset.copy) copy(button);
  else if ("close" in button.dataset) button.closest("dialog").close();
});

// ---- keyboard ---------------------------------------------------------------------------------------------------------

const pages = { q: "/console", t: "/console/topics", s: "/console/states", x: "/console/transactions", m: "/console/trail", k: "/console/keys" };
let isGoing = false;

function moveRow(step) {
  const links = [...document.querySelectorAll("tbody tr:not([hidden]) th a, tbody tr:not([hidden]) td a.row")];
  if (!links.length) return;
  const current = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
  const next = current < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(current + step, 0), links.length - 1);
  links[next].focus();
}

const shortcuts = {
  "/": () => document.querySelector("[data-find], input[type=search]")?.focus(),
  "?": () => open("shortcuts"),
  t: switchTheme,
  x: () => document.activeElement.closest("tr")?.querySelector("input[name=number]")?.click(),
  j: () => moveRow(1),
  k: () => moveRow(-1),
};

// The number of bytes beside a size is that of the text that was there.
document.addEventListener("input", (event) => event.target.parentElement?.querySelector("[data-exact]")?.replaceChildren());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (isGoing) {
    isGoing = false;
    const link = document.querySelector(`nav a[href="${root}${pages[event.key]}"]`);
    if (link) link.click();
  } else if (event.key === "g") {
    isGoing = true;
    setTimeout(() => (isGoing = false), 1500);
  } else if (shortcuts[event.key]) {
    event.preventDefault();
    shortcuts[event.key]();
  }
});

// ---- find rows of this page ---------------------------------------------------------------------------------------------

const find = document.querySelector("[data-find]");

function filterRows() {
  const wanted = find.value.toLowerCase();
  let shown = 0;
  for (const row of document.querySelectorAll("tr[data-row]")) {
    row.hidden = !row.dataset.row.toLowerCase().includes(wanted);
    if (!row.hidden) shown += 1;
  }
  for (const part of document.querySelectorAll("[data-live] tbody")) part.hidden = !part.querySelector("tr:not([hidden])");
  const found = document.querySelector("[data-found]");
  if (found) found.textContent = `${shown.toLocaleString("en")} queue${shown === 1 ? "" : "s"}`;
  const address = new URL(location);
  if (wanted) address.searchParams.set("find", find.value);
  else address.searchParams.delete("find");
  history.replaceState(history.state, "", address);
}

if (find && !find.value && document.querySelector("tr[data-row]")) find.addEventListener("input", filterRows);

// ---- start --------------------------------------------------------------------------------------------------------------

function refresh(part) {
  showLocalTimes(part);
  drawSparks(part);
  countSelected(part);
}

refresh(document);
// On a narrow screen the pages and tabs are scrolled sideways, and the current one may be out of view.
for (const link of document.querySelectorAll("nav [aria-current]")) link.scrollIntoView({ block: "nearest", inline: "nearest" });
sendForms(refresh);
followPolicy();
if (document.querySelector("[data-retry]")) awaitAnswer();
const table = document.querySelector("[data-live]");
if (table) followRows(table);
else if (document.querySelector("[data-no-queue]")) awaitFirstQueue();
