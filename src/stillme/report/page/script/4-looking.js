// Pictures, small in cards and large in a dialog; what is not in the page is looked for beside it.

function mark(rows, row) {
  return make("span", { class: `mark mark-${rows.column.editor[row] % 6}`, "aria-hidden": "true" });
}

function missing(rows, row) {
  const words = rows.column.state[row] !== EDITED ? OUTCOMES[rows.column.state[row]] : rows.redact === "omit" ? "left out" : "not in this page";
  return make("span", { class: "no-picture" }, words);
}

function image(thumbnail, file, alt) {
  const shown = make("img", { src: file || thumbnail, alt, width: 128, height: 128, loading: file ? "lazy" : null, decoding: "async" });
  shown.addEventListener("error", () => {
    if (thumbnail && shown.getAttribute("src") !== thumbnail) shown.src = thumbnail;
    else shown.replaceWith(make("span", { class: "no-picture" }, "not in this page"));
  });
  return shown;
}

function picture(rows, row, what = "edit", full = false) {
  const thumbnail = thumbnails(rows.column.picture[row]);
  const file = rows.column.file[row] ? rows.files[rows.column.file[row] - 1] : "";
  if (!thumbnail && !file) return null;
  return image(thumbnail, full || !thumbnail ? file : "", `${what}: portrait ${rows.portraits[rows.column.portrait[row]][0]}, ${rows.editors[rows.column.editor[row]]}`);
}

function portraitsOf(rows, row) {
  const second = rows.column.second?.[row] ?? 0;
  return [rows.column.portrait[row], ...(second ? [second - 1] : [])];
}

function sources(rows, row) {
  return portraitsOf(rows, row).map((place) => source(rows, place));
}

function source(rows, place) {
  const [id, thumbnail] = rows.portraits[place];
  if (!thumbnail) return make("span", { class: "no-picture" }, rows.redact === "omit" ? "source left out" : "source not in this page");
  return image(thumbnails(thumbnail), "", `source: portrait ${id}`);
}

function looking(rows, together, onlyPortrait) {
  const dialog = find("look");
  let order = [], now = 0;

  const step = (by) => {
    const place = order.indexOf(now);
    const next = order[(place + by + order.length) % order.length];
    if (next === undefined) return;
    draw(next);
    dialog.querySelector("[autofocus]").focus();
  };
  const draw = (row) => {
    now = row;
    const several = together(row), arms = rows.arms.length > 1;
    const [id, , ...labels] = rows.portraits[rows.column.portrait[row]];
    const [promptId, prompt] = rows.prompts[rows.column.prompt[row]];
    const judged = rows.scores.map((_, at) => at).filter((at) => several.some((each) => rows.column[`rating${at}`][each] !== 0));
    const remarks = several.flatMap((each) => (rows.remarks[each] ?? []).map((said) => [each, ...said]));
    dialog.replaceChildren(
      make("header", {},
        make("h2", { id: "look-title" }, `Portrait ${id}`),
        make("p", {}, mark(rows, row), make("b", {}, rows.editors[rows.column.editor[row]]), ` · ${promptId} “${prompt}”`),
        make("p", { class: "labels" }, ...labels.map((level, at) => make("span", { class: "label" }, `${rows.factors[at].replaceAll("_", " ")}: ${level || "no label"}`)))),
      make("div", { class: "large" },
        ...portraitsOf(rows, row).map((place) => make("figure", {}, source(rows, place), make("figcaption", {}, "source"))),
        ...several.map((each) => make("figure", {}, picture(rows, each, "edit", true) ?? missing(rows, each), make("figcaption", {}, arms ? rows.arms[rows.column.arm[each]] : "edit")))),
      make("table", {},
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Axis"), make("th", { scope: "col" }, "Judge"), ...several.map((each) => make("th", { scope: "col", class: "n" }, arms ? rows.arms[rows.column.arm[each]] : "Answer")))),
        make("tbody", {}, ...judged.map((at) => make("tr", {}, make("th", { scope: "row" }, rows.shownAs[rows.scores[at].axis].title), make("td", {}, rows.scores[at].judge), ...several.map((each) => make("td", { class: "n" }, answer(rows, at, each))))))),
      remarks.length ? make("dl", { class: "facts" }, ...remarks.map(([each, who, axis, text]) =>
        make("div", {}, make("dt", {}, [who, arms ? rows.arms[rows.column.arm[each]] : "", axis ? rows.shownAs[axis]?.title ?? axis : ""].filter(Boolean).join(", ")), make("dd", {}, text)))) : null,
      make("p", { class: "note" }, "Key ", make("code", {}, several.map((each) => rows.keys[each]).join(" "))),
      make("p", { class: "steps" },
        make("button", { type: "button", class: "more", onclick: () => step(-1) }, "← Previous"),
        make("button", { type: "button", class: "more", onclick: () => step(1) }, "Next →"),
        make("button", { type: "button", class: "more", onclick: () => { dialog.close(); onlyPortrait(id); } }, "All edits of this portrait"),
        make("button", { type: "button", class: "more", autofocus: true, onclick: () => dialog.close() }, "Close")),
    );
  };
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") step(1);
    if (event.key === "ArrowLeft") step(-1);
  });
  return {
    within: (rowsInOrder) => { order = rowsInOrder; },
    open: (row) => {
      draw(row);
      dialog.showModal();
    },
  };
}

// One instruction, every group: a person of each, alike in all else.
function sideBySide(rows, look) {
  const place = find("grid"), form = find("grid-choice");
  if (!rows.grid || !place) return;
  const { levels, portraits, prompts, rows: treatments, factor } = rows.grid;
  const name = ([editor, arm]) => (rows.arms.length > 1 ? `${rows.editors[editor]} · ${rows.arms[arm]}` : rows.editors[editor]);
  const draw = (chosen) => {
    const cell = (row) => (row < 0 ? make("span", { class: "no-picture" }, "no edit")
      : make("button", { type: "button", class: "look", "aria-label": `Look at ${rows.portraits[rows.column.portrait[row]][0]}`, onclick: () => look.open(row) }, picture(rows, row) ?? missing(rows, row)));
    place.replaceChildren(make("table", { class: "crossing" },
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, factor), ...levels.map((level) => make("th", { scope: "col" }, level)))),
      make("tbody", {},
        make("tr", {}, make("th", { scope: "row" }, "Source"), ...portraits.map((each) => make("td", {}, source(rows, each)))),
        ...prompts.map((prompt, at) => make("tr", {}, make("th", { scope: "row" }, make("b", {}, rows.prompts[prompt][0]), ` ${rows.prompts[prompt][1].slice(0, 60)}`), ...chosen[2][at].map((row) => make("td", {}, cell(row))))))));
  };
  const list = make("select", { name: "treatment" }, ...treatments.map((each, at) => make("option", { value: at }, name(each))));
  list.addEventListener("change", () => draw(treatments[Number(list.value)]));
  list.id = "ask-treatment";
  form.append(make("div", { class: "field" }, make("label", { for: list.id }, "Editor"), list));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = treatments.length < 2;
  if (treatments.length) draw(treatments[0]);
}
