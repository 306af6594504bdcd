// What was done and is not known to be saved: kept in the browser, sent in order and together, each under a token of its
// own, so that nothing is lost and nothing counts twice. How much waits is always on the page.
"use strict";
const page = JSON.parse(document.getElementById("page").textContent);
const waiting = `stillme-curate:${page.pools}:${page.curator}`;
const TOGETHER = 25;
const LATE = 1500;
let sending = false;
let leaving = false;
let inside = false; // going to a page of ours, which sends what is left
let listener = () => {};

const read = () => JSON.parse(localStorage.getItem(waiting) || "[]");
const newToken = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

function write(actions) {
  localStorage.setItem(waiting, JSON.stringify(actions));
  tell();
}

function put(action) {
  write([...read(), { ...action, token: newToken(), at: Date.now() }]);
}

function complain(words) {
  const banner = document.getElementById("unsaved");
  if (banner.textContent !== words) banner.textContent = words;
  banner.hidden = !words;
}

function tell() {
  const unsent = read();
  const shown = document.getElementById("saved");
  const late = unsent.length > 0 && Date.now() - unsent[0].at > LATE;
  shown.textContent = unsent.length ? `${late ? "Not saved yet" : "Saving"}: ${unsent.length}` : "✓ All saved";
  shown.classList.toggle("warn", late);
  document.documentElement.dataset.saved = String(unsent.length === 0);
}

addEventListener("beforeunload", (event) => {
  leaving = true;
  setTimeout(() => { leaving = false; }, 3000); // if the reader stays
  if (read().length && !inside) event.preventDefault();
});

// Sends everything. `listener` hears of each cell's new state, and of what the server would not take.
async function send() {
  if (sending) return;
  sending = true;
  const again = (words, after) => {
    if (words) complain(words);
    setTimeout(send, after);
  };
  try {
    for (let unsent = read().slice(0, TOGETHER); unsent.length; unsent = read().slice(0, TOGETHER)) {
      let answer;
      try {
        answer = await fetch("/act", {
          method: "POST",
          headers: { "Content-Type": "application/json", "X-CSRF": page.csrf },
          body: JSON.stringify({ curator: page.curator, actions: unsent.map(({ at, ...action }) => action) }),
          keepalive: true, // Goes through even if the page is left at once.
          signal: AbortSignal.timeout(10000),
        });
      } catch {
        return again("Not saved yet: the server does not answer. Trying again; nothing is lost.", 1000);
      }
      // The next page may have been made before this was saved. It sends it once more, which counts once, and shows it.
      if (leaving) return again("", 3100);
      if (answer.status >= 500) return again("Not saved yet: the server has a problem. Trying again; nothing is lost.", 2000);
      const said = await answer.json().catch(() => ({}));
      if (!answer.ok) {
        const why = said.detail || "This page is out of date.";
        return complain(`Not saved: ${typeof why === "string" ? why : ""} Open your own link again; what you did is kept until then.`);
      }
      const sent = new Set(unsent.map((action) => action.token));
      write(read().filter((action) => !sent.has(action.token)));
      const refusals = [...new Set(Object.values(said.refused))];
      complain(refusals.length ? `Not done: ${refusals.join(" ")}` : "");
      listener(said.states);
    }
  } finally {
    sending = false;
    tell();
  }
}

// Goes to another page of ours as soon as all is saved, or after two seconds: that page sends the rest.
function visit(address) {
  inside = true;
  document.body.inert = true; // what is done from here on is meant for the next page
  const since = Date.now();
  const leave = () => {
    if (read().length && Date.now() - since < 2000) setTimeout(leave, 30);
    else location.href = address;
  };
  leave();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  visit(link.getAttribute("href"));
});
document.addEventListener("submit", () => { inside = true; });
setInterval(tell, 500);
tell();
