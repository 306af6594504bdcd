// A page that is served while a run goes on: how far it has come, and whether newer numbers are there.
(() => {
  const bar = make("aside", { id: "live", "aria-label": "Progress of the run" });
  const words = make("p", { "aria-live": "polite" }, "Asking how far the run has come …");
  const reload = make("button", { type: "button", class: "more", hidden: true, onclick: () => location.reload() }, "Show the newer numbers");
  bar.append(words, reload);
  document.querySelector("nav").after(bar);

  const share = ({ done, total }) => (total ? `${done.toLocaleString("en")} of ${total.toLocaleString("en")} (${Math.floor((100 * done) / total)} %)` : "none yet");
  const told = (what, entries) => entries.map((each) => `${what} ${each.name}: ${share(each)}`);
  const ask = async () => {
    try {
      const found = await (await fetch("progress", { cache: "no-store" })).json();
      const parts = [...told("edits by", found.editors), ...told("ratings by", found.judges)];
      if (found.cost) parts.push(`$${found.cost.toFixed(2)} so far`);
      const state = found.complete ? "The run is complete." : "The run is going on.";
      const sentence = `${state} ${parts.join(" · ")}`;
      if (words.textContent !== sentence) words.textContent = sentence;
      reload.hidden = found.page <= painted;
    } catch {
      words.textContent = "The server has stopped; these are the last numbers it gave.";
    }
    setTimeout(ask, 2000);
  };
  ask();
})();
