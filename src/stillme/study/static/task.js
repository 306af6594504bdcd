// One item on the page: pictures, instruction, questions as native radio buttons, and one-key answers.

export const data = JSON.parse(document.getElementById("data").textContent);
export const csrf = document.querySelector("meta[name=csrf]").content;
const $ = (id) => document.getElementById(id);

const pictures = new Map();

function picture(id) {
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

async function fill(image, id) {
  for (let wait = 500; ; wait = Math.min(8000, wait * 2)) {
    try { image.src = await picture(id); return; }
    catch { await new Promise((done) => setTimeout(done, wait)); }
  }
}

function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export class Task {
  constructor({ onAnswer, onMove }) {
    this.onAnswer = onAnswer;
    this.onMove = onMove;
    this.at = 0;
    this.now = [0, 0];
    this.undoable = [];
    this.values = data.items.map((item) => item.pictures.slice(item.sources).map(() => item.questions.map(() => null)));
    for (const [item, side, question, value] of data.answers) this.values[item][side][question] = value;
    document.addEventListener("keydown", (event) => this.#key(event));
    $("undo").addEventListener("click", () => this.undo());
    $("smaller").addEventListener("click", () => $("zoom").close());
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

  show(at) {
    this.at = at;
    const { item } = this;
    $("prompt").textContent = item.prompt;
    const names = [
      ...(item.sources === 2 ? ["Person A", "Person B"] : ["Original"]),
      ...(this.sides === 2 ? ["Image A", "Image B"] : [item.sources === 2 ? "Scene" : "Edited image"]),
    ];
    $("instruction-label").textContent = item.sources === 2 ? "Look at the scene" : "Instruction given to the editing program";
    $("pictures").replaceChildren(...item.pictures.map((id, index) => {
      const image = make("img", { alt: names[index], width: 768, height: 768 });
      fill(image, id);
      const button = make("button", { type: "button" }, image);
      button.setAttribute("aria-label", `Enlarge: ${names[index]}`);
      button.addEventListener("click", () => this.zoom());
      return make("figure", { className: "picture" }, make("figcaption", { textContent: names[index] }), button);
    }));
    $("questions").replaceChildren(...item.questions.map((name, index) => this.#question(name, index)));
    this.now = this.#firstOpen() ?? [0, 0];
    this.mark();
    window.scrollTo(0, 0);
    for (const next of [at + 1, at + 2]) data.items[next]?.pictures.forEach((id) => picture(id).catch(() => {}));
    const keep = new Set([at - 1, at, at + 1, at + 2].flatMap((near) => data.items[near]?.pictures ?? []));
    for (const [id, loading] of pictures) {
      if (!keep.has(id)) { pictures.delete(id); loading.then(URL.revokeObjectURL, () => {}); }
    }
    this.onMove?.();
  }

  #question(name, index) {
    const { title, question, scale } = data.questions[name];
    const letters = this.sides === 2 ? ["A", "B"] : [""];
    const anchors = scale.map((text, place) => [place + 1, text]);
    if (data.abstain) anchors.push([0, "Cannot tell"]);
    const grid = make("div", { className: this.sides === 2 ? "scale" : "scale one" });
    const head = (side) => make("span", { className: "head", id: `head-${index}-${side}`, textContent: letters[side] });
    grid.append(head(0), make("span"));
    if (this.sides === 2) grid.append(head(1));
    for (const [value, text] of anchors) {
      const label = make("span", { className: "anchor", id: `anchor-${index}-${value}` }, make("b", { textContent: value }), text);
      grid.append(this.#choice(index, 0, value), label);
      if (this.sides === 2) grid.append(this.#choice(index, 1, value));
    }
    const legend = make("legend", {}, title, make("small", { textContent: question }));
    const made = make("fieldset", { className: "question", id: `question-${index}` }, legend, grid);
    return made;
  }

  #choice(index, side, value) {
    const input = make("input", { type: "radio", name: `q${index}-${side}`, value, id: `choice-${index}-${side}-${value}` });
    input.checked = this.values[this.at][side][index] === value;
    const which = this.sides === 2 ? `Image ${"AB"[side]}: ` : "";
    input.setAttribute("aria-label", `${which}${value === 0 ? "" : `${value}, `}${$(`anchor-${index}-${value}`)?.textContent ?? this.#anchor(index, value)}`);
    input.addEventListener("change", () => this.answer(side, index, value));
    input.addEventListener("focus", () => { this.now = [index, side]; this.mark(); });
    return make("label", { className: "choice" }, input);
  }

  #anchor(index, value) {
    return value === 0 ? "Cannot tell" : data.questions[this.item.questions[index]].scale[value - 1];
  }

  answer(side, question, value, { undoing = false } = {}) {
    const before = this.values[this.at][side][question];
    if (before === value) return;
    if (!undoing) this.undoable.push({ at: this.at, side, question, before });
    this.values[this.at][side][question] = value;
    this.now = [question, side];
    this.reflect(this.at, side, question);
    this.onAnswer({ item: this.at, side, question, value });
    this.mark();
  }

  // Show a value that came from elsewhere: undo, or another tab.
  reflect(at, side, question) {
    if (at !== this.at) return;
    const value = this.values[at][side][question];
    for (const input of document.querySelectorAll(`input[name="q${question}-${side}"]`)) input.checked = Number(input.value) === value;
  }

  undo() {
    const last = this.undoable.pop();
    if (!last) return;
    if (last.at !== this.at) this.show(last.at);
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
    const box = $(`question-${question}`);
    box?.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }

  zoom() {
    $("large").replaceChildren(...[...document.querySelectorAll(".picture img")].map((image) => make("img", { src: image.src, alt: image.alt })));
    $("zoom").showModal();
    this.onZoom?.();
  }

  #key(event) {
    if (event.ctrlKey && event.key === "z" && !event.shiftKey) { event.preventDefault(); this.undo(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || !$("keys").checked || event.target.matches?.("textarea, input[type=text], select")) return;
    if ($("zoom").open) { if (event.key.toLowerCase() === "z") { event.preventDefault(); $("zoom").close(); } return; }
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
      else { $("announce").textContent = "All questions of this item are answered."; $("next").focus(); }
    } else if (event.key.toLowerCase() === "n") { event.preventDefault(); $("next").click(); }
    else if (event.key.toLowerCase() === "p") { event.preventDefault(); $("back").click(); }
    else if (event.key.toLowerCase() === "u") { event.preventDefault(); this.undo(); }
    else if (event.key.toLowerCase() === "z") { event.preventDefault(); this.zoom(); }
  }
}

export async function call(method, path, body, options = {}) {
  return fetch(path, { method, headers: { "Content-Type": "application/json", "X-CSRF": csrf }, body: JSON.stringify(body), ...options });
}
