// The rows of the overview: their texts, and their order.
import { drawSpark } from "./sparkline.js";
import { write } from "./texts.js";

const SPARK = 1;
const SLICE_MS = 6;
// What a slice may take. The layout that follows it takes about as long.
const PART = 25;
// The rows of a part of the table, as the server makes them.

export class LiveRows {
  #table;
  #rows;
  #cells = new Map();
  #order = null;
  #later = new Slices((name, cells) => showRow(this.#rows.get(name), cells));

  constructor(table) {
    this.#table = table;
    this.#rows = new Map([...table.querySelectorAll("tr[data-row]")].map((row) => [row.dataset.row, row]));
    for (const event of ["pointerleave", "focusout"]) table.addEventListener(event, () => setTimeout(() => this.#arrange()));
  }

  show({ rows, gone, order }) {
    for (const [name, cells] of Object.entries(rows)) {
      this.#cells.set(name, cells);
      if (this.#rows.has(name)) this.#later.add(name, cells);
    }
    for (const name of gone) {
      this.#cells.delete(name);
      this.#rows.get(name)?.classList.add("gone");
    }
    if (order) this.#order = order;
    this.#arrange();
  }

  // Waits while a reader points at a row or has one in focus, because it would move away.
  #arrange() {
    if (!this.#order || this.#table.matches(":hover, :focus-within")) return;
    const ordered = this.#order.map((name) => this.#row(name));
    const isOrdered = new Set(ordered);
    this.#order = null;
    const others = [...this.#rows.values()].filter((row) => !isOrdered.has(row));
    [...ordered, ...others].forEach((row, index) => {
      const part = this.#table.tBodies[Math.floor(index / PART)] ?? this.#table.createTBody();
      const there = part.rows[index % PART];
      if (there !== row) part.insertBefore(row, there ?? null);
    });
  }

  #row(name) {
    return this.#rows.get(name) ?? this.#newRow(name);
  }

  #newRow(name) {
    const row = this.#rows.values().next().value.cloneNode(true);
    row.classList.remove("gone");
    row.hidden = false;
    row.dataset.row = name;
    const link = row.querySelector("a");
    link.href = link.href.replace(/[^/]*$/, encodeURIComponent(name));
    link.textContent = name;
    this.#rows.set(name, row);
    showRow(row, this.#cells.get(name));
    return row;
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

function showRow(row, [cause, why, status, points, ...texts]) {
  if (row.dataset.attention !== cause) row.dataset.attention = cause;
  const tag = row.querySelector(".tag");
  write(tag, status.replace("_", " "));
  tag.hidden = status === "active";
  write(row.querySelector(".why"), why);
  const spark = row.cells[SPARK].firstElementChild;
  if (spark.dataset.points !== points) {
    spark.dataset.points = points;
    drawSpark(spark);
  }
  texts.forEach((text, index) => write(row.cells[SPARK + 1 + index], text));
}
