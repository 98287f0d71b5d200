// Counts the checked rows of a list, checks all of them at once, and disables the buttons while none is checked.

export function countChecks(root) {
  for (const form of root.querySelectorAll("form[data-checks]")) start(form);
}

function start(form) {
  const all = form.querySelector("[data-check-all]");
  if (!all) return;
  const boxes = [...form.querySelectorAll("input[name=number]")];
  const status = form.querySelector("[data-checked]");
  const update = () => {
    const count = boxes.filter((box) => box.checked).length;
    status.textContent = count ? `${count} of ${boxes.length} selected:` : "Select messages to act on them:";
    all.checked = count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
    for (const button of form.querySelectorAll("button[name=act]")) button.disabled = !count;
  };
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    update();
  });
  form.addEventListener("change", update);
  // A browser that comes back to the page may have kept what was checked.
  addEventListener("pageshow", update);
  update();
}
