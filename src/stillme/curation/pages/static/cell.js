// One cell: every action is sent at once and drawn as the server tells.
"use strict";
const cards = [...document.querySelectorAll(".candidate")];
const by = (id) => document.getElementById(id);
let told = page.state; // what the server says
let state = told; // and what follows with all that it has not heard yet
let asking = null;

function act(kind, detail = {}) {
  put({ cell: page.cell, kind, detail });
  draw();
  flush();
}

function flush() {
  const saved = (action, answer) => {
    if (action.cell === page.cell) told = answer;
    draw();
  };
  send(saved, draw);
}

// What an action will lead to, so that fast fingers need not wait. What undoing leads to, only the server knows.
function after(before, { kind, detail }) {
  const who = detail.candidate;
  const others = before.chosen.filter((candidate) => candidate !== who);
  const ticks = (before.ticked[who] || []).filter((criterion) => criterion !== detail.criterion);
  const { [who]: _, ...kept } = before.rejected;
  switch (kind) {
    case "tick":
      return { ...before, ticked: { ...before.ticked, [who]: [...ticks, detail.criterion] } };
    case "untick":
      return { ...before, ticked: { ...before.ticked, [who]: ticks } };
    case "choose":
      return { ...before, chosen: [...others, who].slice(-page.perCell), rejected: kept, nobody: null };
    case "unchoose":
      return { ...before, chosen: others };
    case "reject":
      return { ...before, chosen: others, rejected: { ...before.rejected, [who]: detail } };
    case "restore":
      return { ...before, rejected: kept };
    case "none":
      return { ...before, chosen: [], nobody: detail.note };
    default:
      return before;
  }
}

function draw() {
  const unheard = read();
  state = unheard.filter((action) => action.cell === page.cell).reduce(after, told);
  for (const card of cards) {
    const id = card.dataset.id;
    const chosen = state.chosen.includes(id);
    const rejected = state.rejected[id];
    const ticked = state.ticked[id] || [];
    for (const box of card.querySelectorAll("[data-criterion]")) box.checked = ticked.includes(box.dataset.criterion);
    card.classList.toggle("chosen", chosen);
    card.classList.toggle("rejected", Boolean(rejected));
    card.querySelector(".mark").textContent = chosen ? "✓ chosen" : rejected ? "✗ rejected" : "";
    const reasons = card.querySelector(".reasons");
    reasons.hidden = !rejected;
    reasons.textContent = rejected ? [...rejected.reasons.map((key) => page.reasons[key]), rejected.note].filter(Boolean).join("; ") : "";
    card.querySelector("[data-do=choose]").textContent = chosen ? "Take back" : "Choose";
    card.querySelector("[data-do=reject]").textContent = rejected ? "Take in again" : "Reject";
  }
  const decided = state.chosen.length === page.perCell;
  by("undo").disabled = !state.can_undo && !unheard.length;
  const words = state.nobody !== null ? "You found nobody fit." : decided ? "Decided." : state.chosen.length ? `${state.chosen.length} of ${page.perCell} chosen.` : "";
  by("verdict").textContent = words;
  document.documentElement.dataset.saved = String(unheard.length === 0);
}

const current = () => document.activeElement?.closest?.(".candidate") || null;
const number = (card) => cards.indexOf(card) + 1;

function open(dialog, card) {
  asking = card;
  by(dialog).showModal();
}

const doing = {
  choose(card) {
    const id = card.dataset.id;
    if (state.chosen.includes(id)) return act("unchoose", { candidate: id });
    const missing = Object.keys(page.titles).filter((key) => !(state.ticked[id] || []).includes(key));
    if (!missing.length) return act("choose", { candidate: id });
    by("unticked-list").textContent = missing.map((key) => page.titles[key].toLowerCase()).join(", ");
    open("unticked", card);
    by("choose-yes").focus();
  },
  reject(card) {
    if (state.rejected[card.dataset.id]) return act("restore", { candidate: card.dataset.id });
    for (const box of by("rejecting").querySelectorAll("[name=reason]")) box.checked = false;
    by("reject-note").value = "";
    by("reject-wrong").textContent = "";
    by("rejecting-title").textContent = `Why not candidate ${number(card)}?`;
    open("rejecting", card);
    by("rejecting").querySelector("[name=reason]").focus();
  },
  zoom(card) {
    by("zoom-title").textContent = `Candidate ${number(card)}`;
    by("zoom-image").src = `/picture/${card.dataset.id}/large`;
    by("zoom-image").alt = `Candidate ${number(card)}, enlarged`;
    open("zoom", card);
  },
};

function finish(dialog) {
  by(dialog).close();
  asking?.focus();
}

function reject() {
  const reasons = [...by("rejecting").querySelectorAll("[name=reason]:checked")].map((box) => box.value);
  if (!reasons.length) {
    by("reject-wrong").textContent = "Choose at least one reason.";
    return;
  }
  act("reject", { candidate: asking.dataset.id, reasons, note: by("reject-note").value });
  finish("rejecting");
}

function choose() {
  act("choose", { candidate: asking.dataset.id });
  finish("unticked");
}

function empty() {
  act("none", { note: by("empty-note").value });
  by("emptying").close();
}

const undo = () => by("undo").disabled || act("undo");
const nobody = () => {
  by("empty-note").value = "";
  by("emptying").showModal();
};
const toggleSize = () => document.querySelector(".zoomed").classList.toggle("actual");

for (const card of cards) {
  card.addEventListener("change", (event) => {
    const criterion = event.target.dataset.criterion;
    if (criterion) act(event.target.checked ? "tick" : "untick", { candidate: card.dataset.id, criterion });
  });
  card.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button) doing[button.dataset.do](card);
  });
}
by("undo").addEventListener("click", undo);
by("nobody").addEventListener("click", nobody);
by("help-button").addEventListener("click", () => by("help").showModal());
by("reject-yes").addEventListener("click", reject);
by("choose-yes").addEventListener("click", choose);
by("empty-yes").addEventListener("click", empty);
by("zoom-size").addEventListener("click", toggleSize);
for (const [dialog, yes] of [["rejecting", reject], ["unticked", choose], ["emptying", empty]]) {
  // Enter in a field means yes; without this a form's first button would be pressed unseen.
  by(dialog).querySelector("form").addEventListener("submit", (event) => {
    if (event.submitter?.value === "no") return;
    event.preventDefault();
    yes();
  });
  by(dialog).addEventListener("close", () => asking?.focus());
}
by("zoom").addEventListener("close", () => asking?.focus());
by("keys-on").checked = localStorage.getItem("stillme-keys") !== "off";
by("keys-on").addEventListener("change", () => localStorage.setItem("stillme-keys", by("keys-on").checked ? "on" : "off"));

function move(step) {
  const at = cards.indexOf(current());
  cards[(at + step + cards.length) % cards.length]?.focus();
}

function keyInDialog(key, dialog) {
  if (dialog.id === "rejecting" && /^[0-9]$/.test(key) && document.activeElement.type !== "text") {
    const boxes = [...dialog.querySelectorAll("[name=reason]")];
    boxes[(Number(key) + 9) % 10]?.click();
  } else if (dialog.id === "rejecting" && key === "Enter" && document.activeElement.type === "checkbox") reject();
  else if (dialog.id === "zoom" && key === "a") toggleSize();
  else return false;
  return true;
}

function keyOnPage(key) {
  const card = current() || (cards.length === 1 ? cards[0] : null);
  if (/^[1-9]$/.test(key)) cards[Number(key) - 1]?.focus();
  else if (key === "ArrowRight") move(1);
  else if (key === "ArrowLeft") move(current() ? -1 : 0);
  else if (key === "u") undo();
  else if (key === "0") nobody();
  else if (key === "?") by("help").showModal();
  else if (key === "n" && page.after) location.href = page.after;
  else if (key === "b" && page.before) location.href = page.before;
  else if (key === "g") location.href = page.grid;
  else if (card && key === "c") doing.choose(card);
  else if (card && key === "x") doing.reject(card);
  else if (card && key === "z") doing.zoom(card);
  else if (card && page.keys[key]) card.querySelector(`[data-criterion=${page.keys[key]}]`).click();
  else return false;
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !by("keys-on").checked) return;
  if (event.target.matches("input[type=text], select, textarea")) return;
  const dialog = document.querySelector("dialog[open]");
  if (dialog ? keyInDialog(event.key, dialog) : keyOnPage(event.key)) event.preventDefault();
});
draw();
flush();
