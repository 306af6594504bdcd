// What was done and is not known to be saved: kept in the browser, sent in order, each under a token of its own, so that
// nothing is lost and nothing counts twice.
"use strict";
const page = JSON.parse(document.getElementById("page").textContent);
const waiting = `stillme-curate:${page.pools}:${page.curator}`;
let sending = false;
let leaving = false;
addEventListener("beforeunload", () => { leaving = true; });

const read = () => JSON.parse(localStorage.getItem(waiting) || "[]");
const write = (actions) => localStorage.setItem(waiting, JSON.stringify(actions));
const newToken = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

function put(action) {
  write([...read(), { ...action, curator: page.curator, token: newToken() }]);
}

function complain(words) {
  const banner = document.getElementById("unsaved");
  banner.textContent = words;
  banner.hidden = !words;
}

// Sends everything; `saved(action, answer)` hears of each success, `refused(action)` of what the server would not take.
async function send(saved, refused) {
  if (sending) return;
  sending = true;
  const again = (words, after) => {
    complain(words);
    setTimeout(() => send(saved, refused), after);
  };
  try {
    for (let actions = read(); actions.length; actions = read()) {
      const [first] = actions;
      let answer;
      try {
        answer = await fetch("/act", {
          method: "POST",
          headers: { "Content-Type": "application/json", "X-CSRF": page.csrf },
          body: JSON.stringify(first),
          keepalive: true, // Goes through even if the page is left at once.
        });
      } catch {
        return again("Not saved yet: the server does not answer. Trying again; nothing is lost.", 1000);
      }
      if (leaving) {
        // The next page may have been made before this was saved. It sends it once more, which counts once, and shows it.
        return setTimeout(() => { leaving = false; send(saved, refused); }, 10000);
      }
      if (answer.status >= 500) return again("Not saved yet: the server has a problem. Trying again; nothing is lost.", 2000);
      const said = await answer.json().catch(() => ({}));
      if (answer.status === 403 || answer.status === 409) {
        const why = said.detail || "this page is out of date";
        return complain(`Not saved: ${why} Open the address that the terminal shows; what you did is kept until then.`);
      }
      write(read().filter((action) => action.token !== first.token));
      if (answer.ok) {
        complain("");
        saved(first, said);
      } else {
        complain(`Not done: ${said.error || answer.statusText}`);
        refused(first);
      }
    }
  } finally {
    sending = false;
  }
}
