// The rating page: every click is queued, sent, acknowledged; the page comes back as it was.
import { Queue } from "./queue.js";
import { Task, call, data, picture } from "./task.js";

const $ = (id) => document.getElementById(id);
const words = { saved: "✓ Saved", saving: "Saving…", offline: "Offline: kept here" };
const channel = "BroadcastChannel" in window ? new BroadcastChannel(`stillme-${data.queue}`) : null;

// A reload may come before the server has heard of the review.
const reviewed = `stillme-reviewed-${data.queue}`;
data.reviewing ||= sessionStorage.getItem(reviewed) !== null;

function trouble(text) {
  $("trouble-text").textContent = text;
  $("trouble").hidden = false;
  window.scrollTo(0, 0);
}

const queue = new Queue(data.queue, {
  onState(state) {
    if ($("saved").textContent !== words[state]) $("saved").textContent = words[state];
    $("saved").className = `saved is-${state}`;
  },
  async send(saving) {
    const answers = saving.entries.filter((entry) => "value" in entry).map(({ seq, item, side, question, value, seen, corrects }) => ({ seq, item, side, question, value, seen, corrects }));
    const comments = saving.entries.filter((entry) => "text" in entry).map(({ seq, item, text }) => ({ seq, item, text }));
    let answer;
    try { answer = await call("PUT", "/api/answers", { epoch: data.epoch, answers, comments, moments: saving.moments }); }
    catch { return "retry"; }
    if (answer.ok) return "saved";
    if (answer.status === 429 || answer.status >= 500) return "retry";
    const said = await answer.json().catch(() => ({}));
    trouble(said.error ?? "Something is wrong with this page. Please reload it.");
    return answer.status === 422 ? "refused" : "stop";
  },
});

const task = new Task({
  onAnswer(answer) {
    queue.add({ ...answer, corrects: data.reviewing });
    channel?.postMessage(answer);
    refresh();
  },
  onMove() { refresh(); },
});
task.onComment = (comment) => queue.add(comment);
task.onZoom = () => queue.note({ item: task.at, kind: "zoomed", amount: 0 });

function refresh() {
  $("where").textContent = `Item ${task.at + 1} of ${data.items.length}`;
  $("progress").max = task.asked;
  $("progress").value = task.answered;
  $("back").disabled = task.at === 0;
  // "Next" always means the next item; handing in has a button of its own.
  const last = task.at === data.items.length - 1;
  const done = task.answered === task.asked;
  $("finish").hidden = !done;
  $("next").hidden = last && done;
  $("next").textContent = last ? "To the first open item" : "Next";
  $("next").classList.toggle("quiet", done);
  const buttons = $("items").querySelectorAll("button");
  buttons.forEach((button, at) => {
    const whole = task.isWhole(at);
    button.classList.toggle("whole", whole);
    button.setAttribute("aria-label", `Item ${at + 1}, ${whole ? "answered" : "open"}`);
    if (at === task.at) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  });
}

function go(at, { push = true } = {}) {
  count();
  const shown = task.show(at);
  if (push) history.pushState({ at }, "", `#${at + 1}`);
  queue.note({ item: at, kind: "shown", amount: 0 });
  shown.then(() => { if (task.at === at) task.focusNow(); });
}

data.items.forEach((_, at) => {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: at + 1 });
  button.addEventListener("click", () => { $("jump").open = false; go(at); });
  const entry = document.createElement("li");
  entry.append(button);
  $("items").append(entry);
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") $("jump").open = false; });

$("back").addEventListener("click", () => { if (task.at > 0) go(task.at - 1); });
$("next").addEventListener("click", () => {
  if (task.at < data.items.length - 1) { go(task.at + 1); return; }
  const open = data.items.findIndex((_, at) => !task.isWhole(at));
  if (open < 0) return;
  go(open);
  $("announce").textContent = `Item ${open + 1} still has open questions.`;
});
$("finish").addEventListener("click", review);
$("stay").addEventListener("click", () => $("review").close());
$("send").addEventListener("click", finish);

// All answers at once, as they were given; from here on a change is a correction, and what was answered first is kept.
async function review() {
  if (!data.reviewing) queue.note({ item: task.at, kind: "review", amount: 0 });
  data.reviewing = true;
  sessionStorage.setItem(reviewed, "yes");
  const make = (tag, properties, ...children) => { const made = Object.assign(document.createElement(tag), properties); made.append(...children); return made; };
  const entries = await Promise.all(data.items.map(async (item, at) => {
    const images = await Promise.all(item.pictures.map(async (id) => make("img", { src: await picture(id), alt: "", width: 96, height: 96 })));
    const answers = task.values[at].flatMap((side, s) => side.map((value, q) => {
      const { title, scale } = data.questions[item.questions[q]];
      const which = task.values[at].length === 2 ? ` (${"AB"[s]})` : "";
      return make("li", {}, `${title}${which}: `, make("b", { textContent: value === 0 ? "cannot tell" : `${value}, ${scale[value - 1]}` }));
    }));
    const change = make("button", { type: "button", className: "quiet", textContent: "Change" });
    change.setAttribute("aria-label", `Change item ${at + 1}`);
    change.addEventListener("click", () => { $("review").close(); go(at); });
    return make("li", {}, make("div", { className: "shown" }, ...images), make("div", {}, make("p", { textContent: item.prompt }), make("ul", {}, ...answers)), change);
  }));
  $("reviewed").replaceChildren(...entries);
  $("review").showModal();
}

async function finish() {
  $("review").close();
  count();
  $("finish").disabled = true;
  try {
    if (!(await queue.drained())) { trouble("Not everything is saved yet. Please wait for the connection and try again."); return; }
    const answer = await call("POST", "/api/complete", { epoch: data.epoch });
    // A second click, or another tab, has handed in already: the next page tells.
    if (answer.status === 409) { location.replace("/study"); return; }
    const said = await answer.json();
    if (!answer.ok) trouble(said.error);
    else if (said.missing.length) { go(said.missing[0]); trouble("Some answers have not arrived. Please answer the open questions once more."); }
    else location.replace("/study");
  } catch { trouble("There is no connection. Your answers are kept; please try again in a moment."); }
  finally { $("finish").disabled = false; }
}

// Active time: the page is in view, in focus, and something was done within the last half minute.
let since = performance.now();
let alive = since;
function count() {
  const now = performance.now();
  const active = document.visibilityState === "visible" && document.hasFocus() && now - alive < 30000;
  if (active && now - since < 5000) queue.note({ item: task.at, kind: "active", amount: Math.round(now - since) });
  since = now;
}
for (const kind of ["pointermove", "pointerdown", "keydown", "scroll"]) document.addEventListener(kind, () => { alive = performance.now(); }, { passive: true });
setInterval(count, 1000);
setInterval(() => queue.pump(), 20000);
document.addEventListener("visibilitychange", () => {
  count();
  queue.note({ item: task.at, kind: document.visibilityState === "visible" ? "visible" : "hidden", amount: 0 });
  queue.pump();
});

window.addEventListener("popstate", (event) => go(event.state?.at ?? place(), { push: false }));
channel?.addEventListener("message", ({ data: { item, side, question, value } }) => {
  task.values[item][side][question] = value;
  task.reflect(item, side, question);
  refresh();
});

function place() {
  const named = Number(location.hash.slice(1)) - 1;
  if (Number.isInteger(named) && named >= 0 && named < data.items.length) return named;
  const open = data.items.findIndex((_, at) => !task.isWhole(at));
  return open >= 0 ? open : 0;
}

// What was still on its way when the page was left comes before what the server knows.
for (const entry of await queue.open(data.seq)) {
  if ("text" in entry) task.comments[entry.item] = entry.text;
  else task.values[entry.item][entry.side][entry.question] = entry.value;
}
const start = place();
history.replaceState({ at: start }, "", `#${start + 1}`);
go(start, { push: false });
queue.pump();
await task.shown;
document.body.dataset.ready = "yes";
