// One candidate large, all of them beside it: which one is shown, going from one to the next, enlarging.
"use strict";
const by = (id) => document.getElementById(id);
const cards = [...document.querySelectorAll(".candidate")];
const thumbs = [...document.querySelectorAll(".thumb")];
const current = () => document.activeElement?.closest?.(".candidate") || document.querySelector(".candidate.current");
const number = (card) => cards.indexOf(card) + 1;
const thumbOf = (card) => thumbs[cards.indexOf(card)];

function show(card) {
  for (const other of cards) {
    other.classList.toggle("current", other === card);
    thumbOf(other).toggleAttribute("aria-current", other === card);
  }
}

function go(card) {
  if (!card) return;
  show(card);
  card.focus();
}

function move(step) {
  go(cards[(cards.indexOf(current()) + step + cards.length) % cards.length]);
}

function mark(card, words, kind) {
  for (const part of [card, thumbOf(card)]) {
    part.querySelector(".mark").textContent = words;
    part.classList.toggle("chosen", kind === "chosen");
    part.classList.toggle("rejected", kind === "rejected");
  }
}

let opener = null;
function enlarge(card) {
  opener = card;
  by("zoom-title").textContent = `Candidate ${number(card)}`;
  by("zoom-image").src = `/picture/${card.dataset.id}/large`;
  by("zoom-image").alt = `Candidate ${number(card)}, enlarged`;
  by("zoom").showModal();
}
const toggleSize = () => document.querySelector(".zoomed").classList.toggle("actual");
by("zoom-size").addEventListener("click", toggleSize);
by("zoom").addEventListener("close", () => opener?.focus());

// Keys that mean the same wherever candidates are shown.
function keyOnStage(key) {
  const dialog = document.querySelector("dialog[open]");
  if (dialog) {
    if (dialog.id !== "zoom") return false;
    if (key === "s") toggleSize();
    else if (key === "z") dialog.close();
    else if (key === "ArrowRight" || key === "ArrowLeft") {
      const next = cards[(cards.indexOf(opener) + (key === "ArrowRight" ? 1 : -1) + cards.length) % cards.length];
      dialog.close();
      show(next);
      enlarge(next);
    } else return false;
  } else if (/^[1-9]$/.test(key)) go(cards[Number(key) - 1]);
  else if (key === "ArrowRight") move(1);
  else if (key === "ArrowLeft") move(-1);
  else if (key === "z" && current()) enlarge(current());
  else return false;
  return true;
}

thumbs.forEach((thumb, place) => thumb.addEventListener("click", () => go(cards[place])));
for (const card of cards) {
  card.addEventListener("focusin", () => show(card));
  card.querySelector("[data-do=zoom]").addEventListener("click", () => enlarge(card));
}
if (cards.length) show(cards[0]);
