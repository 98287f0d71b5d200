// Sends the forms of a page. After a refusal the form stays as it is, with what was typed in it and the reason beside it.

import { root } from "./root.js";

const SIGN_IN = `${root}/console/sign-in`;
const ENDED = "Your session has ended. Sign in in another window, then try again.";
const DOUBT = "It is not known whether this request took effect.";
const NO_CONNECTION = `No connection to the server. ${DOUBT}`;

let before = null;

// `show` prepares a part of a page that has been added.
export function sendForms(show) {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post" || "steps" in form.dataset) return;
    event.preventDefault();
    // A form that is being sent is not sent again: a double click would make a second key.
    if (!("isSending" in form.dataset)) send(form, event.submitter, show);
  });
  addEventListener("popstate", () => {
    if (before) document.querySelector("main").replaceWith(before);
    before = null;
  });
  addEventListener("pageshow", (event) => event.persisted && [...document.forms].forEach(release));
}

async function send(form, submitter, show) {
  form.dataset.isSending = "";
  form.setAttribute("aria-busy", "true");
  document.querySelector("[data-refused]")?.remove();
  let fault = NO_CONNECTION;
  try {
    if ("isOld" in form.dataset) await renewToken(form);
    const body = new URLSearchParams(new FormData(form, submitter));
    const answer = await fetch(form.action, { method: "POST", body, headers: { accept: "application/json, text/html" } });
    fault = await faultOf(answer, form);
    if (fault === null) return answer.redirected ? location.assign(answer.url) : showPage(await answer.text(), form, show);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
  }
  release(form);
  say(fault, form, submitter);
}

function release(form) {
  delete form.dataset.isSending;
  form.removeAttribute("aria-busy");
}

// Returns why the request was refused; null for a page to show.
async function faultOf(answer, form) {
  const hasEnded = answer.redirected && new URL(answer.url).pathname === SIGN_IN && !form.action.endsWith("/sign-out");
  if (hasEnded) form.dataset.isOld = "";
  // The form has taken effect if its answer names another page, even if that page cannot be shown now.
  if (answer.redirected) return hasEnded ? ENDED : null;
  const type = answer.headers.get("content-type") ?? "";
  if (type.startsWith("application/json")) return (await answer.json()).fault;
  // An answer without the policy of pages is that of a proxy.
  const isPage = type.startsWith("text/html") && answer.headers.has("content-security-policy");
  return isPage ? null : `The server cannot answer now (${answer.status}). ${DOUBT}`;
}

// After another sign-in the tokens of pages are new.
async function renewToken(form) {
  const page = parse(await (await fetch(location.href)).text());
  const token = page.querySelector("input[name=csrf_token]");
  if (token) form.elements.csrf_token.value = token.value;
}

function parse(text) {
  return new DOMParser().parseFromString(text, "text/html");
}

// Shows the page that answers a form, in place of the form. Back returns to the form as it was.
function showPage(text, form, show) {
  const page = parse(text);
  const [main, next] = [document.querySelector("main"), page.querySelector("main")];
  release(form);
  if (!before) history.pushState(null, "");
  before ??= main;
  document.title = page.title;
  main.replaceWith(next);
  show(next);
  next.querySelector("[data-back]")?.addEventListener("click", (event) => {
    event.preventDefault();
    history.back();
  });
  const first = next.querySelector("[aria-invalid=true]") ?? next;
  first.focus();
  if (first === next) scrollTo(0, 0);
}

function say(fault, form, submitter) {
  const [note, text, again] = ["div", "p", "button"].map((name) => document.createElement(name));
  note.className = "refused";
  note.dataset.refused = "";
  note.setAttribute("role", "alert");
  const hasFields = form.querySelector("textarea, select, input:not([type=hidden])");
  text.textContent = hasFields ? `${fault} Nothing that you have typed is lost.` : fault;
  again.type = "button";
  again.textContent = "Try again";
  again.onclick = () => form.requestSubmit(submitter);
  note.append(text, again);
  const place = hasFields && submitter ? [...form.children].find((child) => child.contains(submitter)) : null;
  if (place) place.before(note);
  else document.querySelector("main").prepend(note);
  note.scrollIntoView({ block: "nearest" });
}
