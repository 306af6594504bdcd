// A long table: sorted by any heading, shown some rows at a time.

const ROWS_SHOWN = 200;

function growingTable({ table, rows, cells, keys, more, noun }) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  let kept = rows, count = ROWS_SHOWN, sorted = null;

  const draw = () => {
    const order = sorted === null ? kept : [...kept].sort(sorted);
    body.replaceChildren(...order.slice(0, count).map((row) => make("tr", {}, ...cells(row))));
    const left = order.length - Math.min(count, order.length);
    const grow = () => {
      const first = body.rows.length;
      count += ROWS_SHOWN;
      draw();
      body.rows[first]?.querySelector("a, button")?.focus();
    };
    const rest = left ? make("button", { type: "button", class: "more", onclick: grow }, `Show ${Math.min(ROWS_SHOWN, left)} more of ${left.toLocaleString("en")} ${noun}`) : "";
    more.replaceChildren(rest);
  };
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.disabled = false;
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = keys[column];
      sorted = (a, b) => {
        const [first, second] = [key(a), key(b)];
        const [firstEmpty, secondEmpty] = [first, second].map((value) => value === null || value === "" || Number.isNaN(value));
        if (firstEmpty || secondEmpty) return firstEmpty - secondEmpty;
        const order = typeof first === "number" ? first - second : first.localeCompare(second, "en", { numeric: true });
        return down ? -order : order;
      };
      count = ROWS_SHOWN;
      draw();
    });
  });
  return (only) => {
    kept = only;
    count = ROWS_SHOWN;
    draw();
  };
}

function tableOfEstimates(rows) {
  const manyArms = rows.arms.length > 1;
  const note = (judge, quantity) => {
    const known = rows.quantities.find((candidate) => candidate.name === quantity && candidate.judge === judge);
    return known && known.score !== null ? rows.scores[known.score].note : "";
  };
  const cells = ([editor, arm, judge, quantity, title, scope, group, , text, chance, portraits, edits, method, href]) => {
    const judgeNote = note(judge, quantity);
    return [
      make("td", {}, manyArms ? `${editor} · ${arm}` : editor),
      make("td", {}, judge, judgeNote ? make("em", { class: "note" }, ` (${judgeNote})`) : null),
      make("td", {}, title),
      make("td", {}, scope),
      make("td", {}, group),
      make("td", { class: "n" }, make("a", { href }, text)),
      make("td", {}, chance),
      make("td", { class: "n" }, portraits),
      make("td", { class: "n" }, edits),
      make("td", {}, method),
    ];
  };
  const at = (index) => (row) => row[index];
  const only = growingTable({
    table: find("estimates"),
    rows: rows.estimates,
    cells,
    keys: [at(0), at(2), at(4), at(5), at(6), at(7), at(9), at(10), at(11), at(12)],
    more: find("more-numbers"),
    noun: "numbers",
  });
  const field = find("filter"), count = find("count");
  const texts = new Map(rows.estimates.map((row) => [row, row.slice(0, 13).join(" ").toLowerCase()]));
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = rows.estimates.filter((row) => words.every((word) => texts.get(row).includes(word)));
    count.textContent = `${kept.length.toLocaleString("en")} of ${rows.estimates.length.toLocaleString("en")} numbers`;
    only(kept);
  };
  field.closest(".filter").hidden = false;
  field.addEventListener("input", filter);
  filter();
}
