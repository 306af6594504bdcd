// A long table: sorted by any heading, shown a stretch at a time.

const STRETCH = 200;

function growing({ table, rows, cells, keys, more, noun }) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  let kept = rows, count = STRETCH, sorted = null;

  const draw = () => {
    const order = sorted === null ? kept : [...kept].sort(sorted);
    body.replaceChildren(...order.slice(0, count).map((row) => make("tr", {}, ...cells(row))));
    const left = order.length - Math.min(count, order.length);
    const grow = () => {
      const first = body.rows.length;
      count += STRETCH;
      draw();
      body.rows[first]?.querySelector("a, button")?.focus();
    };
    const rest = left ? make("button", { type: "button", class: "more", onclick: grow }, `Show ${Math.min(STRETCH, left)} more of ${left.toLocaleString("en")} ${noun}`) : "";
    more.replaceChildren(rest);
  };
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.disabled = false;
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = keys[column];
      sorted = (a, b) => {
        const [one, other] = [key(a), key(b)];
        const [no, none] = [one, other].map((each) => each === null || each === "" || Number.isNaN(each));
        if (no || none) return no - none;
        const order = typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true });
        return down ? -order : order;
      };
      count = STRETCH;
      draw();
    });
  });
  return (only) => {
    kept = only;
    count = STRETCH;
    draw();
  };
}

function tableOfEstimates(rows) {
  const manyArms = rows.arms.length > 1;
  const note = (judge, quantity) => {
    const known = rows.quantities.find((each) => each.name === quantity && each.judge === judge);
    return known && known.score !== null ? rows.scores[known.score].note : "";
  };
  const cells = ([editor, arm, judge, quantity, title, scope, who, , text, chance, portraits, edits, method, href]) => {
    const marked = note(judge, quantity);
    return [
      make("td", {}, manyArms ? `${editor} · ${arm}` : editor),
      make("td", {}, judge, marked ? make("em", { class: "note" }, ` (${marked})`) : null),
      make("td", {}, title),
      make("td", {}, scope),
      make("td", {}, who),
      make("td", { class: "n" }, make("a", { href }, text)),
      make("td", {}, chance),
      make("td", { class: "n" }, portraits),
      make("td", { class: "n" }, edits),
      make("td", {}, method),
    ];
  };
  const at = (place) => (row) => row[place];
  const only = growing({
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
