// Times in the zone of the reader with UTC as their title, and how long ago they are beside them.

const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "short" });
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const SECONDS_BETWEEN = 10;

export function showLocalTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([title])")) showTime(time, time.dateTime, time.textContent);
  showAges(root);
}

export function showTime(time, iso, text) {
  if (!iso) return;
  time.dateTime = iso;
  time.title = text;
  time.textContent = zone.format(new Date(iso));
}

// A sentence with times in the form of the API, as elements.
export function writeWithTimes(element, sentence) {
  if (element.dataset.sentence === sentence) return;
  element.dataset.sentence = sentence;
  const parts = sentence.split(/(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)/);
  element.replaceChildren(...parts.map((part, index) => (index % 2 ? elementOf(part) : part)));
}

function elementOf(iso) {
  const time = document.createElement("time");
  showTime(time, iso, `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC`);
  return time;
}

function showAges(root) {
  for (const time of root.querySelectorAll("time[data-ago]")) {
    let age = time.nextElementSibling;
    if (!age?.classList.contains("ago")) {
      age = document.createElement("span");
      age.className = "ago";
      time.after(age);
    }
    const text = ageOf(new Date(time.dateTime));
    if (age.textContent !== text) age.textContent = text;
  }
}

function ageOf(date) {
  const seconds = Math.round((date - Date.now()) / 1000);
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  return seconds === 0 ? "now" : relative.format(Math.trunc(seconds / size), unit);
}

setInterval(() => document.hidden || showAges(document), SECONDS_BETWEEN * 1000);
