// The practice: the same page, with feedback instead of saving.
import { Task, call, data } from "./task.js";

const $ = (id) => document.getElementById(id);
const task = new Task({ onAnswer: forget, onMove: refresh });

function forget({ side, question }) {
  document.getElementById(`said-${question}-${side}`)?.remove();
  refresh();
}

function refresh() {
  $("where").textContent = `Practice ${task.at + 1} of ${data.items.length}`;
  $("progress").max = task.asked;
  $("progress").value = task.answered;
  $("back").disabled = task.at === 0;
  $("next").textContent = "Check my answers";
}

$("back").addEventListener("click", () => { if (task.at > 0) task.show(task.at - 1); });
$("next").addEventListener("click", async () => {
  if (!task.isWhole(task.at)) {
    $("announce").textContent = "Please answer every question first.";
    task.now = task.values[task.at].flatMap((side, s) => side.map((value, q) => [value, q, s])).filter(([value]) => value === null).sort((a, b) => a[1] - b[1] || a[2] - b[2])[0].slice(1);
    task.mark();
    task.focusNow();
    return;
  }
  $("next").disabled = true;
  try {
    const answer = await call("POST", "/api/training", { answers: task.values.slice(0, task.at + 1) });
    if (!answer.ok) { location.reload(); return; }
    const { feedback, finished } = await answer.json();
    if (finished) { location.replace("/study"); return; }
    say(feedback[task.at]);
  } catch { $("announce").textContent = "There is no connection. Please try again."; }
  finally { $("next").disabled = false; }
});

function say(sides) {
  document.querySelectorAll(".said").forEach((element) => element.remove());
  let wrong = 0;
  sides.forEach((hints, side) => hints.forEach((hint, question) => {
    if (!hint) return;
    wrong += 1;
    const which = sides.length === 2 ? `Image ${"AB"[side]}. ` : "";
    const said = Object.assign(document.createElement("p"), { className: "said", id: `said-${question}-${side}`, textContent: which + hint });
    $(`question-${question}`).append(said);
  }));
  if (wrong) {
    $("announce").textContent = `${wrong} ${wrong === 1 ? "answer differs" : "answers differ"} from ours; see the notes at the questions.`;
    document.querySelector(".said").scrollIntoView({ block: "center" });
  } else if (task.at + 1 < data.items.length) {
    $("announce").textContent = "All right. Here is the next practice item.";
    task.show(task.at + 1).then(() => task.focusNow());
  }
}

await task.show(0);
document.body.dataset.ready = "yes";
