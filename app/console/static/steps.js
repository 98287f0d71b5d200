// Carries out an action in steps. Each request does a part, until nothing is left or the reader stops it.

async function step(form) {
  const answer = await fetch(form.action, {
    method: "POST",
    body: new URLSearchParams(new FormData(form)),
    headers: { accept: "application/json" },
  });
  if (answer.headers.get("content-type") !== "application/json") throw new Error("The server refused this. Load the page again.");
  const result = await answer.json();
  if (result.fault) throw new Error(result.fault);
  return result;
}

async function run(form) {
  const [progress, status, stop] = ["progress", "[role=status]", "[data-stop]"].map((selector) => form.querySelector(selector));
  const button = form.querySelector("button:not([type])");
  const total = Number(form.elements.left.value);
  const say = (text) => (status.textContent = text);
  const count = (number) => `${number.toLocaleString("en")}${total ? ` of ${total.toLocaleString("en")}` : ""} ${status.dataset.verb}`;
  let [done, isStopped, isFinished] = [0, false, false];
  form.querySelector("[data-progress]").hidden = stop.hidden = progress.hidden = false;
  button.disabled = true;
  if (total) progress.max = total;
  else progress.removeAttribute("value");
  stop.onclick = () => {
    isStopped = true;
    say(`${count(done)}. It stops after this step.`);
  };
  stop.focus();
  say(`${count(0)}.`);
  try {
    while (!isStopped && !isFinished) {
      const result = await step(form);
      done += result.done;
      isFinished = result.is_finished;
      if (total) {
        progress.value = done;
        form.elements.left.value = Math.max(total - done, 0);
      }
      if (!isStopped) say(`${count(done)}.`);
    }
    say(isFinished ? `${count(done)}. Nothing is left of the plan.` : `${count(done)}. Stopped.`);
  } catch (error) {
    say(`${count(done)}. ${error instanceof TypeError ? "No connection to the server." : error.message}`);
  }
  stop.hidden = true;
  button.disabled = isFinished;
  const after = form.querySelector("[data-after]");
  if (after && done) after.hidden = false;
}

for (const form of document.querySelectorAll("form[data-steps]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(form);
  });
}
