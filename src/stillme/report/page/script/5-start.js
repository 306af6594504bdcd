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
