// One item on the page: pictures, instruction, questions as native radio buttons, and one-key answers.

import { Zoom } from "./zoom.js";

export const data = JSON.parse(document.getElementById("data").textContent);
export const csrf = document.querySelector("meta[name=csrf]").content;
const $ = (id) => document.getElementById(id);

const pictures = new Map();
const BUDGET = 200e6;
const whole = data.items.flatMap((item) => item.pictures).length * data.picture.length <= BUDGET && !navigator.connection?.saveData;
const pause = (time) => new Promise((done) => setTimeout(done, time));

export function picture(id) {
  if (!pictures.has(id)) {
    const loading = fetch(`/img/${id}`).then(async (answer) => {
      if (!answer.ok) throw new Error("no picture");
      return URL.createObjectURL(await answer.blob());
    });
    loading.catch(() => pictures.delete(id));
    pictures.set(id, loading);
  }
  return pictures.get(id);
}

// Until the picture is decoded, as large as it was made: what is not seen is not rated.
async function fill(image, id, { onTrouble, isWanted }) {
  for (let wait = 500; isWanted(); wait = Math.min(8000, wait * 2)) {
    try {
      image.src = await picture(id);
      await image.decode();
      if (image.naturalWidth === data.picture.side) return;
      throw new Error("not the picture");
    } catch {
      pictures.delete(id);
      onTrouble();
      await pause(wait);
    }
  }
}

// The whole task where it fits in memory, else what comes next; from the item in view on.
let fetching = 0;
async function fetchAhead(at) {
  const mine = ++fetching;
  const last = whole ? data.items.length : Math.min(data.items.length, at + 3);
  const wanted = [...data.items.slice(at, last), ...(whole ? data.items.slice(0, at).reverse() : [])].flatMap((item) => item.pictures);
  if (!whole) {
    const keep = new Set([...(data.items[at - 1]?.pictures ?? []), ...wanted]);
    for (const [id, loading] of pictures) if (!keep.has(id)) { pictures.delete(id); loading.then(URL.revokeObjectURL, () => {}); }
  }
  for (let wait = 1000; ;) {
    const next = wanted.filter((id) => !pictures.has(id)).slice(0, 2);
    if (mine !== fetching) return;
    if (!next.length) break;
    const results = await Promise.allSettled(next.map(picture));
    if (results.some(({ status }) => status === "rejected")) { await pause(wait); wait = Math.min(15000, wait * 2); }
  }
  document.body.dataset.fetched = wanted.length;
}

function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// How far the window is zoomed: what the device check asks for, and what is noted, is in pixels without zoom.
export function zoomOf() {
  const zoom = window.outerWidth / window.innerWidth;
  return zoom > 1.05 ? zoom : 1;
}

export class Task {
  constructor({ onAnswer, onMove }) {
    this.onAnswer = onAnswer;
    this.onMove = onMove;
    this.at = 0;
    this.now = [0, 0];
    this.pointed = 0;
    this.undoable = [];
    this.values = data.items.map((item) => item.pictures.slice(item.sources).map(() => item.questions.map(() => null)));
    for (const [item, side, question, value] of data.answers) this.values[item][side][question] = value;
    document.addEventListener("keydown", (event) => this.#key(event));
    $("undo").addEventListener("click", () => this.undo());
    this.zoom = new Zoom(() => this.onZoom?.());
    this.comments = Object.fromEntries(data.comments ?? []);
    const keys = $("keys");
    try { keys.checked = localStorage.getItem("stillme-keys") !== "off"; } catch { /* private windows may refuse */ }
    keys.addEventListener("change", () => {
      try { localStorage.setItem("stillme-keys", keys.checked ? "on" : "off"); } catch { /* the choice lasts for this page */ }
      $("hint").hidden = !keys.checked;
    });
    $("hint").hidden = !keys.checked;
    const most = Math.max(...Object.values(data.questions).map(({ scale }) => scale.length));
    $("hint").textContent = $("hint").textContent.replace("1–5", `1–${most}`);
  }

  get item() { return data.items[this.at]; }
  get sides() { return this.item.pictures.length - this.item.sources; }
  isWhole(at) { return this.values[at].every((side) => side.every((value) => value !== null)); }
  get answered() { return this.values.flat(2).filter((value) => value !== null).length; }
  get asked() { return this.values.flat(2).length; }

  // Resolves once every picture is on the screen and the questions may be answered.
  show(at) {
    this.at = at;
    this.ready = false;
    const { item } = this;
    $("prompt").textContent = item.prompt;
    const names = [
      ...(item.sources === 2 ? ["Person A", "Person B"] : ["Original"]),
      ...(this.sides === 2 ? ["Image A", "Image B"] : [item.sources === 2 ? "Scene" : "Edited image"]),
    ];
    $("instruction-label").textContent = item.sources === 2 ? "Look at the scene" : "Instruction given to the editing program";
    $("look").dataset.layout = item.sources === 2 ? "pair" : this.sides === 2 ? "three" : "two";
    this.images = item.pictures.map((_, index) => make("img", { alt: names[index], width: data.picture.side, height: data.picture.side, draggable: false }));
    $("pictures").replaceChildren(...this.images.map((image, index) => {
      const button = make("button", { type: "button" }, image);
      button.setAttribute("aria-label", `Enlarge: ${names[index]}`);
      button.addEventListener("click", (event) => this.zoom.open(this.images, event));
      return make("figure", { className: "picture" }, make("figcaption", { textContent: names[index] }), button);
    }));
    $("questions").inert = true;
    $("questions").replaceChildren(...item.questions.map((name, index) => this.#question(name, index)), ...this.#comment());
    $("questions").scrollTop = 0;
    this.now = this.#firstOpen() ?? [0, 0];
    this.mark();
    window.scrollTo(0, 0);
    this.onMove?.();
    this.shown = this.#load(item);
    fetchAhead(at);
    return this.shown;
  }

  async #load(item) {
    const images = this.images;
    const isWanted = () => this.images === images;
    const say = (text) => { if (isWanted()) { $("loading").textContent = text; $("loading").hidden = !text; } };
    const slow = setTimeout(() => say("Loading the pictures…"), 300);
    const onTrouble = () => { clearTimeout(slow); say("A picture cannot be loaded, so this item cannot be answered yet. Trying again: please check your connection, and that no browser extension blocks pictures."); };
    await Promise.all(item.pictures.map((id, index) => fill(images[index], id, { onTrouble, isWanted })));
    clearTimeout(slow);
    if (!isWanted()) return;
    say("");
    $("questions").inert = false;
    this.ready = true;
    this.onShown?.();
  }

  get seen() {
    const sides = this.images.map((image) => image.getBoundingClientRect()).map(({ width, height }) => Math.min(width, height));
    return {
      pictures: this.images.filter((image) => image.complete && image.naturalWidth > 0).length,
      decoded: Math.min(...this.images.map((image) => image.naturalWidth)),
      shown: Math.round(Math.min(...sides) * zoomOf()),
    };
  }

  #question(name, index) {
    const { title, question, scale } = data.questions[name];
    const two = this.sides === 2;
    const anchors = scale.map((text, place) => [place + 1, text]);
    if (data.abstain) anchors.push([0, "Cannot tell"]);
    const grid = make("div", { className: two ? "scale" : "scale one" });
    const head = (side) => make("span", { className: "head", id: `head-${index}-${side}`, textContent: two ? "AB"[side] : "" });
    if (two) grid.append(make("span"), head(0), head(1));
    for (const [value, text] of anchors) {
      // With one picture the words themselves can be clicked; with two they belong to both answers.
      const anchor = make(two ? "span" : "label", { className: "anchor" }, make("b", { textContent: value }), make("span", { textContent: text }));
      if (!two) anchor.htmlFor = `choice-${index}-0-${value}`;
      grid.append(anchor);
      for (let side = 0; side < this.sides; side++) grid.append(this.#choice(index, side, value));
    }
    const made = make("div", { className: "question", id: `question-${index}` },
      make("div", { className: "asked" }, make("h2", { id: `title-${index}`, textContent: title }), make("p", { textContent: question })), grid);
    made.setAttribute("role", "group");
    made.setAttribute("aria-labelledby", `title-${index}`);
    return made;
  }

  #comment() {
    if (!data.comments) return [];
    const box = make("textarea", { id: "comment", rows: 2, maxLength: 2000, value: this.comments[this.at] ?? "" });
    box.addEventListener("change", () => {
      if ((this.comments[this.at] ?? "") === box.value) return;
      this.comments[this.at] = box.value;
      this.onComment({ item: this.at, text: box.value });
    });
    const details = make("details", { className: "comment", open: Boolean(box.value) }, make("summary", { textContent: "Comment on this item" }),
      make("label", { htmlFor: "comment", textContent: "Anything odd about these pictures? Voluntary; please do not name yourself." }), box);
    return [details];
  }

  #choice(index, side, value) {
    const input = make("input", { type: "radio", name: `q${index}-${side}`, value, id: `choice-${index}-${side}-${value}` });
    input.checked = this.values[this.at][side][index] === value;
    const which = this.sides === 2 ? `Image ${"AB"[side]}: ` : "";
    input.setAttribute("aria-label", `${which}${value === 0 ? "" : `${value}, `}${this.#anchor(index, value)}`);
    input.addEventListener("change", () => {
      this.answer(side, index, value);
      // By mouse or finger the next question comes up by itself; arrow keys only move within this one.
      if (performance.now() - this.pointed < 700) this.#goOn(index);
    });
    input.addEventListener("focus", () => { this.now = [index, side]; this.mark(); });
    const label = make("label", { className: "choice" }, input, make("span", { className: "key", textContent: value === 0 ? "?" : value, ariaHidden: "true" }));
    label.addEventListener("pointerup", () => { this.pointed = performance.now(); });
    return label;
  }

  // To the next question with something open, once every side of this one is answered.
  #goOn(question) {
    if (this.values[this.at].some((side) => side[question] === null)) return;
    const next = this.#order().find(([later, side]) => later > question && this.values[this.at][side][later] === null);
    if (!next) return;
    this.now = next;
    this.mark();
    this.#bringUp(next[0]);
  }

  #anchor(index, value) {
    return value === 0 ? "Cannot tell" : data.questions[this.item.questions[index]].scale[value - 1];
  }

  answer(side, question, value, { undoing = false } = {}) {
    if (!this.ready) return;
    const before = this.values[this.at][side][question];
    if (before === value) return;
    if (!undoing) this.undoable.push({ at: this.at, side, question, before });
    this.values[this.at][side][question] = value;
    this.now = [question, side];
    this.reflect(this.at, side, question);
    this.onAnswer({ item: this.at, side, question, value, seen: this.seen });
    this.mark();
  }

  // Show a value that came from elsewhere: undo, or another tab.
  reflect(at, side, question) {
    if (at !== this.at) return;
    const value = this.values[at][side][question];
    for (const input of document.querySelectorAll(`input[name="q${question}-${side}"]`)) input.checked = Number(input.value) === value;
  }

  async undo() {
    const last = this.undoable.pop();
    if (!last) return;
    if (last.at !== this.at) await this.show(last.at);
    if (last.at !== this.at) return;
    this.answer(last.side, last.question, last.before, { undoing: true });
    $("announce").textContent = "Undone.";
    this.focusNow();
  }

  #order() {
    return this.item.questions.flatMap((_, question) => Array.from({ length: this.sides }, (_, side) => [question, side]));
  }

  #firstOpen() {
    return this.#order().find(([question, side]) => this.values[this.at][side][question] === null);
  }

  // Mark the question and side that the next number key answers.
  mark() {
    $("undo").disabled = !this.undoable.length;
    document.querySelectorAll(".now").forEach((element) => element.classList.remove("now"));
    const [question, side] = this.now;
    $(`question-${question}`)?.classList.add("now");
    $(`head-${question}-${side}`)?.classList.add("now");
    this.onMark?.();
  }

  focusNow() {
    const [question, side] = this.now;
    const group = [...document.querySelectorAll(`input[name="q${question}-${side}"]`)];
    const target = group.find((input) => input.checked) ?? group[0];
    target?.focus({ preventScroll: true });
    this.#bringUp(question);
  }

  #bringUp(question) {
    const box = $(`question-${question}`);
    const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
    const panel = $("questions");
    // The question in turn stands at the top of the panel, and the pictures beside or above it.
    panel.scrollTo({ top: box.offsetTop - 8, behavior });
  }

  #key(event) {
    if (event.ctrlKey && event.key === "z" && !event.shiftKey) { event.preventDefault(); this.undo(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || !$("keys").checked || event.target.matches?.("textarea, input[type=text], select")) return;
    if (document.querySelector("dialog[open]") || !this.ready) return;
    const value = Number(event.key);
    const [question, side] = this.now;
    const most = data.questions[this.item.questions[question]].scale.length;
    if (/^[0-5]$/.test(event.key) && value <= most && (value > 0 || data.abstain)) {
      event.preventDefault();
      this.answer(side, question, value);
      const order = this.#order();
      const place = order.findIndex(([q, s]) => q === question && s === side);
      const next = [...order.slice(place + 1), ...order.slice(0, place)].find(([q, s]) => this.values[this.at][s][q] === null);
      if (next) { this.now = next; this.mark(); this.focusNow(); }
      else { $("announce").textContent = "All questions of this item are answered."; this.focusOn(); }
    } else if (event.key.toLowerCase() === "n") { event.preventDefault(); $("next").click(); }
    else if (event.key.toLowerCase() === "p") { event.preventDefault(); $("back").click(); }
    else if (event.key.toLowerCase() === "u") { event.preventDefault(); this.undo(); }
    else if (event.key.toLowerCase() === "z") { event.preventDefault(); this.zoom.open(this.images); }
  }

  // Where a rater goes who has answered everything of this item.
  focusOn() {
    ($("finish")?.hidden === false ? $("finish") : $("next")).focus();
  }
}

export async function call(method, path, body, options = {}) {
  return fetch(path, { method, headers: { "Content-Type": "application/json", "X-CSRF": csrf }, body: JSON.stringify(body), ...options });
}
