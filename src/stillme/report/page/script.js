// Sorting and filtering of the table of estimates; the page is complete without it.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.disabled = false;
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
      const numeric = head.dataset.kind === "number";
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");
        const order = numeric ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true });
        return down ? -order : order;
      });
      body.append(...rows.map(([, row]) => row));
    });
  });
  const field = document.getElementById(table.dataset.filter);
  const count = document.getElementById(table.dataset.count);
  if (field) {
    field.closest(".filter").hidden = false;
    const texts = new Map([...body.rows].map((row) => [row, row.textContent.toLowerCase()]));
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const [row, text] of texts) {
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = `${shown} of ${texts.size} rows`;
    });
  }
}
