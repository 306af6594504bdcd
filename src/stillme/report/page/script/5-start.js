// On a phone a section below the answers is folded until it is asked for; wider windows and paper show all.
(() => {
  if (!matchMedia("(max-width: 760px)").matches) return;
  const toggle = (section, open) => {
    section.classList.toggle("folded", !open);
    section.querySelector(".folding").setAttribute("aria-expanded", open);
  };
  for (const section of document.querySelectorAll("main > section:not(#answers)")) {
    const head = section.querySelector("h2");
    head.replaceChildren(make("button", { type: "button", class: "folding", onclick: () => toggle(section, section.classList.contains("folded")) }, ...head.childNodes));
    section.classList.add("foldable");
    toggle(section, false);
  }
  const follow = () => {
    const section = find(location.hash.slice(1).split("?")[0])?.closest(".foldable");
    if (section) toggle(section, true);
  };
  // Before the explorer scrolls to its rows.
  addEventListener("hashchange", follow, { capture: true });
  follow();
})();

// Everything else on the page can be read while this runs.
unpack().then((rows) => {
  tableOfEstimates(rows);
  sideBySide(rows, explorer(rows));
  addEventListener("beforeprint", () => {
    for (const image of document.querySelectorAll("img[loading=lazy]")) image.loading = "eager";
  });
  document.documentElement.dataset.ready = "yes";
}, (reason) => {
  find("explorer").replaceChildren(make("p", {}, `This browser cannot unpack the rows (${reason.message}). Everything above is complete; the rows are in the run’s folder.`));
  document.documentElement.dataset.ready = "no";
});
