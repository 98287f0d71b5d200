// Counts the selected rows of a list, selects all of them at once, and disables the buttons while none is selected.

export function countSelected(root) {
  for (const form of root.querySelectorAll("form[data-selection]")) start(form);
}

function start(form) {
  const all = form.querySelector("[data-select-all]");
  if (!all) return;
  const boxes = [...form.querySelectorAll("input[name=number]")];
  const status = form.querySelector("[data-selected]");
  const update = () => {
    const count = boxes.filter((box) => box.checked).length;
    status.textContent = count ? `${count} of ${boxes.length} selected:` : "Select messages to act on them:";
    all.checked = count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
    for (const button of form.querySelectorAll("button[name=action_name]")) button.disabled = !count;
  };
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    update();
  });
  form.addEventListener("change", update);
  // A browser that comes back to the page may have kept what was selected.
  addEventListener("pageshow", update);
  update();
}
