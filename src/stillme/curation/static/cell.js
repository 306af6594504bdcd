// One cell: every action is sent at once and drawn as the server tells.
"use strict";
let told = page.state; // what the server says
let state = told; // and what follows with all that it has not heard yet
let asking = null;

function act(kind, detail = {}) {
  if (state.final && kind !== "undo") return;
  put({ cell: page.cell, kind, detail });
  draw();
  send();
}

listener = (states) => {
  told = states[page.cell] || told;
  draw();
};

// What an action will lead to, so that fast fingers need not wait. What undoing leads to, only the server knows.
function after(before, { kind, detail }) {
  const who = detail.candidate;
  const others = before.chosen.filter((candidate) => candidate !== who);
  const ticks = (before.ticked[who] || []).filter((criterion) => criterion !== detail.criterion);
  const { [who]: _, ...kept } = before.rejected;
  switch (kind) {
    case "tick":
      return { ...before, ticked: { ...before.ticked, [who]: [...ticks, detail.criterion] } };
    case "tick_all":
      return { ...before, ticked: { ...before.ticked, [who]: Object.keys(page.titles) } };
    case "untick":
      return { ...before, ticked: { ...before.ticked, [who]: ticks } };
    case "choose":
      return { ...before, chosen: [...others, who].slice(-page.perCell), rejected: kept, none_fits: null };
    case "unchoose":
      return { ...before, chosen: others };
    case "reject":
      return { ...before, chosen: others, rejected: { ...before.rejected, [who]: detail } };
    case "restore":
      return { ...before, rejected: kept };
    case "none":
      return { ...before, chosen: [], none_fits: detail.note };
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
    for (const box of card.querySelectorAll("[data-criterion]")) {
      box.checked = ticked.includes(box.dataset.criterion);
      box.disabled = state.final;
    }
    mark(card, chosen ? "✓ chosen" : rejected ? "✗ rejected" : "", chosen ? "chosen" : rejected ? "rejected" : "");
    const reasons = card.querySelector(".reasons");
    reasons.hidden = !rejected;
    reasons.textContent = rejected ? [...rejected.reasons.map((key) => page.reasons[key]), rejected.note].filter(Boolean).join("; ") : "";
    card.querySelector("[data-do=choose] .words").textContent = chosen ? "Take back" : "Choose";
    card.querySelector("[data-do=reject] .words").textContent = rejected ? "Take in again" : "Reject";
    for (const button of card.querySelectorAll(".actions button")) button.disabled = state.final;
  }
  const decided = state.chosen.length === page.perCell;
  by("undo").disabled = !state.can_undo && !unheard.length;
  by("none_fits").disabled = state.final;
  by("final").hidden = !state.final;
  const words = state.none_fits !== null ? "You found no candidate fit." : decided ? "Decided." : state.chosen.length ? `${state.chosen.length} of ${page.perCell} chosen.` : "";
  by("verdict").textContent = words;
}

function open(dialog, card) {
  asking = card;
  by(dialog).showModal();
}

const doing = {
  choose(card) {
    if (state.final) return;
    const id = card.dataset.id;
    if (state.chosen.includes(id)) return act("unchoose", { candidate: id });
    const missing = Object.keys(page.titles).filter((key) => !(state.ticked[id] || []).includes(key));
    if (!missing.length) return act("choose", { candidate: id });
    by("unticked-list").textContent = missing.map((key) => page.titles[key].toLowerCase()).join(", ");
    open("unticked", card);
    by("choose-yes").focus();
  },
  reject(card) {
    if (state.final) return;
    if (state.rejected[card.dataset.id]) return act("restore", { candidate: card.dataset.id });
    for (const box of by("rejecting").querySelectorAll("[name=reason]")) box.checked = false;
    by("reject-note").value = "";
    by("reject-wrong").textContent = "";
    by("rejecting-title").textContent = `Why not candidate ${number(card)}?`;
    open("rejecting", card);
    by("rejecting").querySelector("[name=reason]").focus();
  },
  all(card) {
    const id = card.dataset.id;
    if (Object.keys(page.titles).some((key) => !(state.ticked[id] || []).includes(key))) act("tick_all", { candidate: id });
  },
  zoom: () => {}, // stage.js
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
const emptyCell = () => {
  if (state.final) return;
  by("empty-note").value = "";
  by("emptying").showModal();
};

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
by("none_fits").addEventListener("click", emptyCell);
by("help-button").addEventListener("click", () => by("help").showModal());
by("reject-yes").addEventListener("click", reject);
by("choose-yes").addEventListener("click", choose);
by("empty-yes").addEventListener("click", empty);
for (const [dialog, yes] of [["rejecting", reject], ["unticked", choose], ["emptying", empty]]) {
  // Enter in a field means yes; without this a form's first button would be pressed unseen.
  by(dialog).querySelector("form").addEventListener("submit", (event) => {
    if (event.submitter?.value === "no") return;
    event.preventDefault();
    yes();
  });
  by(dialog).addEventListener("close", () => asking?.focus());
}
by("keys-on").checked = localStorage.getItem("stillme-keys") !== "off";
by("keys-on").addEventListener("change", () => localStorage.setItem("stillme-keys", by("keys-on").checked ? "on" : "off"));

function keyInDialog(key, dialog) {
  if (dialog.id === "rejecting" && /^[0-9]$/.test(key) && document.activeElement.type !== "text") {
    const boxes = [...dialog.querySelectorAll("[name=reason]")];
    boxes[(Number(key) + 9) % 10]?.click();
  } else if (dialog.id === "rejecting" && key === "Enter" && document.activeElement.type === "checkbox") reject();
  else return false;
  return true;
}

function keyOnPage(key) {
  const card = current();
  if (key === "u") undo();
  else if (key === "0") emptyCell();
  else if (key === "?") by("help").showModal();
  else if (key === "n" && page.after) visit(page.after);
  else if (key === "b" && page.before) visit(page.before);
  else if (key === "g") visit(page.grid);
  else if (card && key === "a") doing.all(card);
  else if (card && key === "c") doing.choose(card);
  else if (card && key === "x") doing.reject(card);
  else if (card && page.keys[key]) card.querySelector(`[data-criterion=${page.keys[key]}]`).click();
  else return false;
  return true;
}

document.addEventListener("keydown", (event) => {
  if (inside || event.ctrlKey || event.metaKey || event.altKey || !by("keys-on").checked) return;
  if (event.target.matches("input[type=text], select, textarea")) return;
  const dialog = document.querySelector("dialog[open]");
  const handled = keyOnStage(event.key) || (dialog ? keyInDialog(event.key, dialog) : keyOnPage(event.key));
  if (handled) event.preventDefault();
});
draw();
send();
