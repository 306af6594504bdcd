// A page that is served during a run: its progress, and whether there are newer numbers.
(() => {
  const bar = make("aside", { id: "live", "aria-label": "Progress of the run" });
  const words = make("p", { "aria-live": "polite" }, "Loading the progress of the run …");
  const reload = make("button", { type: "button", class: "more", hidden: true, onclick: () => location.reload() }, "Show the newer numbers");
  bar.append(words, reload);
  document.querySelector("nav").after(bar);

  const share = ({ done, total }) => (total ? `${done.toLocaleString("en")} of ${total.toLocaleString("en")} (${Math.floor((100 * done) / total)} %)` : "none yet");
  const shares = (what, entries) => entries.map((entry) => `${what} ${entry.name}: ${share(entry)}`);
  const ask = async () => {
    try {
      const progress = await (await fetch("progress", { cache: "no-store" })).json();
      const parts = [...shares("edits by", progress.editors), ...shares("ratings by", progress.judges)];
      if (progress.cost) parts.push(`$${progress.cost.toFixed(2)} so far`);
      const state = progress.problem || (progress.complete ? "The run is complete." : "The run is going on.");
      const sentence = `${state} ${parts.join(" · ")}`;
      if (words.textContent !== sentence) words.textContent = sentence;
      reload.hidden = progress.page <= painted;
    } catch {
      words.textContent = "The server has stopped; these are the last numbers it gave.";
    }
    setTimeout(ask, 2000);
  };
  ask();
})();
