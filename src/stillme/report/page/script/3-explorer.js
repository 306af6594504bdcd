// Filters over the rows, shown as pictures or as a table. The filters are part of the page's address.

const CARDS = 24;

function explorer(rows) {
  const form = find("filters"), summary = find("summary"), content = find("explorer");
  const armsOf = sameRequest(rows), disagree = disagreement(rows);
  const mosaic = new Set(rows.mosaic), rank = new Map(rows.worst.map((row, index) => [row, index]));
  const arms = rows.arms.length > 1;
  const controls = new Map();
  let asked = new URLSearchParams();

  const choice = (name, options, empty) => {
    const list = make("select", { name }, ...(empty === null ? [] : [make("option", { value: "" }, empty)]));
    list.append(...options.map(([value, text]) => make("option", { value }, text)));
    return list;
  };
  const labelled = (label, control, kind) => {
    control.id = `ask-${control.name}`;
    return make("div", { class: kind ? `field ${kind}` : "field" }, make("label", { for: control.id }, label), control);
  };
  const select = (name, label, options, empty = "all") => {
    const list = choice(name, options, empty);
    list.addEventListener("change", () => ask((now) => (list.value ? now.set(name, list.value) : now.delete(name))));
    controls.set(name, list);
    return labelled(label, list);
  };
  const number = (name, label) => {
    const box = make("input", { name, type: "number", step: "any", inputmode: "decimal" });
    box.addEventListener("change", () => ask((now) => (box.value ? now.set(name, box.value) : now.delete(name))));
    controls.set(name, box);
    return labelled(label, box, "narrow");
  };

  const quantities = rows.quantities.map(({ name, judge, title }) => [`${name}\n${judge}`, judge ? `${title} · ${judge}` : title]);
  const measure = choice("measure", quantities, "any");
  measure.addEventListener("change", () =>
    ask((now) => {
      const [name, judge] = measure.value.split("\n");
      for (const key of ["quantity", "judge", "at", "from", "to", "by"]) now.delete(key);
      if (name) now.set("quantity", name);
      if (judge) now.set("judge", judge);
    }),
  );
  const flags = [["mosaic", "in the mosaic"]].filter(() => mosaic.size);
  if (disagree) flags.unshift(["disagree", "judges disagree"]);
  flags.push(["remarks", "with remarks"]);
  if (rows.column.happened) flags.unshift(["happened", "edit was made"], ["not-happened", "edit was not made"]);
  const levels = rows.factors.map((factor, index) => [factor, [...new Set(rows.portraits.map((portrait) => portrait[index + 2]))].filter(Boolean).sort()]);
  const at = select("at", "Which", [["counts", "those that count"], ["not", "those that do not"], ["none", "without an answer"]], "all");
  const from = number("from", "from"), to = number("to", "to");
  form.append(
    select("view", "Show as", [["", "pictures"], ["table", "a table"]], null),
    select("editor", "Editor", rows.editors.map((editor) => [editor, editor])),
    ...(arms ? [select("arm", "Arm", rows.arms.map((arm) => [arm, arm]))] : []),
    select("prompt", "Instruction", rows.prompts.map(([id, text]) => [id, `${id} ${text.slice(0, 60)}`])),
    ...levels.map(([factor, names]) => select(`label.${factor}`, factor.replaceAll("_", " "), names.map((level) => [level, level]))),
    labelled("Score", measure),
    at,
    from,
    to,
    select("outcome", "Outcome", OUTCOMES.map((outcome) => [outcome, outcome])),
    select("flag", "Flag", flags),
    select("order", "Order", [["", "worst first"], ["asked", "as requested"]], null),
    make("button", { type: "button", class: "more", onclick: () => ask((now) => [...now.keys()].forEach((name) => name !== "view" && now.delete(name))) }, "Clear"),
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;

  const ask = (change) => {
    change(asked);
    history.replaceState(null, "", `#edits?${asked}`);
    draw();
  };

  const chosen = () => {
    const { editor, arm, prompt, portrait, state } = rows.column;
    const tests = [];
    const only = (name, codes, names) => {
      if (asked.has(name)) {
        const code = names.indexOf(asked.get(name));
        tests.push((row) => codes[row] === code);
      }
    };
    only("editor", editor, rows.editors);
    only("arm", arm, rows.arms);
    only("prompt", prompt, rows.prompts.map(([id]) => id));
    only("portrait", portrait, rows.portraits.map(([id]) => id));
    only("outcome", state, OUTCOMES);
    for (const [name, value] of asked) {
      if (name.startsWith("label.")) {
        const level = levelsOf(rows, name.slice(6));
        tests.push((row) => level(row) === value);
      }
    }
    const flag = asked.get("flag");
    if (flag === "mosaic") tests.push((row) => mosaic.has(row));
    if (flag === "disagree" && disagree) tests.push(disagree);
    if (flag === "happened" && rows.column.happened) tests.push((row) => rows.column.happened[row] === 1);
    if (flag === "not-happened" && rows.column.happened) tests.push((row) => rows.column.happened[row] === 0 && state[row] === EDITED);
    if (flag === "remarks") tests.push((row) => rows.remarks[row] !== undefined);
    const all = [];
    for (let row = 0; row < rows.rows; row += 1) if (tests.every((test) => test(row))) all.push(row);
    return all;
  };

  const measured = () => rows.quantities.find(({ name, judge }) => name === asked.get("quantity") && judge === (asked.get("judge") ?? ""));

  const narrowed = (all, read) => {
    if (!read) return all;
    const which = asked.get("at");
    const low = asked.has("from") ? Number(asked.get("from")) : -Infinity, high = asked.has("to") ? Number(asked.get("to")) : Infinity;
    const bounded = asked.has("from") || asked.has("to");
    return all.filter((row) => {
      const value = read(row);
      if (which === "none") return Number.isNaN(value);
      if (which === "counts" && !(value > 0)) return false;
      if (which === "not" && !(value === 0)) return false;
      return !bounded || (value >= low && value <= high);
    });
  };

  const ordered = (all, quantity) => {
    if (asked.get("order") === "asked") return all;
    const key = quantity && quantity.score !== null ? (row) => -distance(rows, quantity.score, row) : (row) => rank.get(row) ?? Infinity;
    return all.map((row) => [key(row), row]).sort(([a, one], [b, other]) => a - b || one - other).map(([, row]) => row);
  };

  const count = (all, read) => {
    let sum = 0, rated = 0;
    for (const row of all) {
      const value = read(row);
      if (!Number.isNaN(value)) {
        sum += value;
        rated += 1;
      }
    }
    return { sum, rated, value: rated ? sum / rated : NaN };
  };

  const counted = (quantity, { sum, rated, value }) => {
    const basis = quantity.rate ? `${sum.toLocaleString("en")} of ${rated.toLocaleString("en")}` : `mean of ${rated.toLocaleString("en")}`;
    return `${formatted(quantity, value)} (${basis})`;
  };

  const summarise = (all, quantity, read) => {
    const parts = [make("h3", { id: "how-many", tabindex: "-1" }, `${all.length.toLocaleString("en")} edit${all.length === 1 ? "" : "s"}`)];
    if (quantity) {
      const total = count(all, read), missing = all.length - total.rated;
      parts.push(
        make("p", { class: "counted" }, `${quantity.title}${quantity.judge ? `, ${quantity.judge}` : ""}: `, make("b", { id: "counted" }, counted(quantity, total)),
          missing ? `; ${missing.toLocaleString("en")} without a value are not counted` : ""),
      );
      if (asked.has("by")) {
        const factor = asked.get("by"), level = levelsOf(rows, factor), groups = new Map();
        for (const row of all) groups.set(level(row), [...(groups.get(level(row)) ?? []), row]);
        const lines = [...groups.keys()].filter(Boolean).sort().map((name) =>
          make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "n" }, counted(quantity, count(groups.get(name), read)))));
        parts.push(make("table", { class: "by-group" }, make("caption", {}, `by ${factor.replaceAll("_", " ")}`), make("tbody", {}, ...lines)));
      }
    }
    if (asked.has("portrait")) parts.push(make("p", {}, `Only portrait ${asked.get("portrait")}.`));
    summary.replaceChildren(...parts);
  };

  // Each column: its heading, what it sorts by, and how it is shown.
  const columnsOf = (quantity, read) => {
    const plain = (head, key) => [head, key, (row) => make("td", {}, Number.isNaN(key(row)) ? "–" : key(row))];
    const { editor, arm, prompt, state } = rows.column;
    const columns = [];
    if (quantity?.score === null) columns.push(plain(quantity.title, read));
    else if (quantity) {
      columns.push(["Answer", (row) => rows.column[`score${quantity.score}`][row], (row) => make("td", {}, answer(rows, quantity.score, row))]);
      if (quantity.rate) columns.push(["Counts", read, (row) => make("td", {}, Number.isNaN(read(row)) ? "–" : read(row) ? "yes" : "no")]);
    }
    columns.push(plain("Portrait", (row) => portraitOf(row)[0]));
    rows.factors.forEach((factor, index) => columns.push(plain(factor.replaceAll("_", " "), (row) => portraitOf(row)[index + 2])));
    columns.push(plain("Editor", (row) => rows.editors[editor[row]]));
    if (arms) columns.push(plain("Arm", (row) => rows.arms[arm[row]]));
    columns.push(["Instruction", (row) => rows.prompts[prompt[row]][0], (row) => make("td", { title: rows.prompts[prompt[row]][1] }, rows.prompts[prompt[row]][0])]);
    columns.push(plain("Outcome", (row) => OUTCOMES[state[row]]));
    columns.push(["Key", (row) => rows.keys[row], (row) => make("td", {}, make("code", {}, rows.keys[row]))]);
    return columns;
  };

  const asTable = (all, quantity, read) => {
    const columns = columnsOf(quantity, read);
    const look = make("th", { scope: "col" }, make("span", { class: "visually-hidden" }, "Look"));
    const heads = columns.map(([head]) => make("th", { scope: "col" }, make("button", { type: "button" }, head)));
    const table = make("table", {}, make("thead", {}, make("tr", {}, look, ...heads)), make("tbody"));
    const more = make("p");
    content.replaceChildren(make("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Rows" }, table), more);
    const cells = (row) => [make("td", {}, lookButton(row)), ...columns.map(([, , cell]) => cell(row))];
    growingTable({ table, rows: all, cells, keys: [null, ...columns.map(([, key]) => key)], more, noun: "edits" })(all);
  };

  const portraitOf = (row) => rows.portraits[rows.column.portrait[row]];
  const lookButton = (row) => make("button", { type: "button", class: "look", "aria-label": `Look at ${portraitOf(row)[0]}`, onclick: () => look.open(row) }, picture(rows, row) ?? "look");

  const asPictures = (all, quantity) => {
    const seen = new Set(), order = [];
    for (const row of all) {
      const first = armsOf(row)[0];
      if (!seen.has(first)) {
        seen.add(first);
        order.push(row);
      }
    }
    const cards = make("ul", { class: "gallery" });
    const more = make("p");
    let count = 0;
    const grow = () => {
      const next = order.slice(count, count + CARDS).map((row) => card(row, quantity));
      cards.append(...next);
      if (count) next[0]?.querySelector("button").focus();
      count += CARDS;
      const left = order.length - count;
      more.replaceChildren(left > 0 ? make("button", { type: "button", class: "more", onclick: grow }, `Show ${Math.min(CARDS, left)} more of ${left.toLocaleString("en")}`) : "");
    };
    content.replaceChildren(order.length ? cards : make("p", {}, "No edit matches these filters."), more);
    grow();
    look.within(order);
  };

  const card = (row, quantity) => {
    const edits = armsOf(row);
    const [id, , ...labels] = portraitOf(row);
    const scores = worstScores(row, quantity);
    return make("li", {},
      make("button", { type: "button", class: "pair", "aria-label": `Look at portrait ${id}, ${rows.editors[rows.column.editor[row]]}, ${rows.prompts[rows.column.prompt[row]][0]}`, onclick: () => look.open(row) },
        ...sources(rows, row), ...edits.map((edit) => picture(rows, edit, arms ? rows.arms[rows.column.arm[edit]] : "edit") ?? noPicture(rows, edit))),
      make("p", { class: "who" }, mark(rows, row), make("span", { class: "editor" }, rows.editors[rows.column.editor[row]]), arms ? make("span", { class: "arm" }, ` ${edits.map((edit) => rows.arms[rows.column.arm[edit]]).join(" | ")}`) : null),
      make("p", { class: "prompt", title: rows.prompts[rows.column.prompt[row]][0] }, rows.prompts[rows.column.prompt[row]][1]),
      make("p", { class: "labels" }, ...labelsOf(rows, labels)),
      make("dl", {}, ...scores.map(([title, matters, ...values], index) => make("div", { class: matters && !index ? "bad" : null }, make("dt", {}, title), make("dd", {}, values.join(" → "))))),
    );
  };

  // The asked-for score, or the four that are furthest from an unchanged person.
  const worstScores = (row, quantity) => {
    const indices = quantity && quantity.score !== null ? [quantity.score]
      : rows.scores.map((_, index) => index).filter((index) => rows.scores[index].headline && distance(rows, index, row) >= 0)
        .sort((a, b) => distance(rows, b, row) - distance(rows, a, row)).slice(0, 4);
    return indices.map((index) => [rows.byAxis[rows.scores[index].axis].title, distance(rows, index, row) > 0, ...armsOf(row).map((edit) => answer(rows, index, edit, { brief: true }))]);
  };

  const draw = () => {
    for (const [name, control] of controls) control.value = asked.get(name) ?? "";
    measure.value = asked.has("quantity") ? `${asked.get("quantity")}\n${asked.get("judge") ?? ""}` : "";
    const quantity = measured(), read = quantity ? reader(rows, quantity) : null;
    at.hidden = !quantity;
    from.hidden = to.hidden = !quantity || quantity.rate;
    const all = narrowed(chosen(), read);
    summarise(all, quantity, read);
    const order = ordered(all, quantity);
    if (asked.get("view") === "table") {
      asTable(order, quantity, read);
      look.within(order);
    } else asPictures(order, quantity);
  };

  const follow = () => {
    if (!location.hash.startsWith("#edits?")) return;
    asked = new URLSearchParams(location.hash.slice(7));
    draw();
    summary.scrollIntoView({ behavior: "instant" });
    find("how-many").focus({ preventScroll: true });
  };
  addEventListener("hashchange", follow);
  const look = lookDialog(rows, armsOf, (id) => {
    location.hash = `#edits?${new URLSearchParams({ portrait: id })}`;
  });
  draw();
  follow();
  return look;
}
