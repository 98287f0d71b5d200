// Writes a text where it differs from what is shown.
export function write(element, text) {
  if (!element || element.textContent === text) return;
  element.textContent = text;
  if (element.tagName === "TD") element.classList.toggle("none", text === "0" || text === "–");
}
