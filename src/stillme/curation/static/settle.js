// Settling: the same keys as choosing; Enter settles.
"use strict";
const page = JSON.parse(by("page").textContent);
const boxes = cards.map((card) => card.querySelector("input[type=checkbox]"));
let picked = [];

function draw() {
  for (const card of cards) {
    const chosen = card.querySelector("input[type=checkbox]").checked;
    mark(card, chosen ? "✓ chosen" : "", chosen ? "chosen" : "");
  }
}

function changed(box) {
  picked = picked.filter((other) => other !== box);
  if (box.checked) {
    picked.push(box);
    by("none_fits").checked = false;
  }
  // One more than the cell takes replaces the first of them.
  while (picked.length > page.perCell) picked.shift().checked = false;
  draw();
}

for (const box of boxes) box.addEventListener("change", () => changed(box));
by("none_fits").addEventListener("change", () => {
  if (by("none_fits").checked) for (const box of picked.splice(0)) box.checked = false;
  draw();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem("stillme-keys") === "off") return;
  if (event.target.matches("input[type=text]")) return;
  const open = document.querySelector("dialog[open]");
  const { key } = event;
  if (keyOnStage(key)) event.preventDefault();
  else if (open) return;
  else if (key === "c" && current()) current().querySelector("input[type=checkbox]").click();
  else if (key === "0") by("none_fits").click();
  else if (key === "g") location.href = "/";
  else if (key === "Enter" && !event.target.matches("a, button")) by("settling").requestSubmit();
  else return;
  event.preventDefault();
});
draw();
