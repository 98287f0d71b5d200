// Draws the delays of a retry policy again while its fields change, as the button of its form does.

const QUIET_MS = 300;

let timer = null;
let request = new AbortController();

export function followPolicy() {
  document.addEventListener("input", ({ target }) => {
    const policy = target.closest("[data-policy]");
    if (!policy) return;
    clearTimeout(timer);
    request.abort();
    timer = setTimeout(draw, QUIET_MS, policy);
  });
}

// A refused form has no drawing. If no answer comes, the old drawing is removed, because it may contradict the fields.
async function draw(policy) {
  request = new AbortController();
  let drawing = [];
  try {
    const { form } = policy;
    const body = new URLSearchParams(new FormData(form, form.elements.draw));
    const answer = await fetch(form.action, { method: "POST", body, signal: request.signal });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    drawing = page.querySelector("[data-drawing]")?.childNodes ?? [];
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof TypeError)) throw error;
  }
  policy.querySelector("[data-drawing]").replaceChildren(...drawing);
}
