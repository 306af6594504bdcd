// Pictures, small in cards and large in a dialog; those that are not in the page are loaded from its folder.

function mark(rows, row) {
  return make("span", { class: `mark mark-${rows.column.editor[row] % 6}`, "aria-hidden": "true" });
}

function noPicture(rows, row) {
  const words = rows.column.state[row] !== EDITED ? OUTCOMES[rows.column.state[row]] : rows.redact === "omit" ? "omitted" : "not in this page";
  return make("span", { class: "no-picture" }, words);
}

function image(thumbnail, file, alt) {
  const element = make("img", { src: file || thumbnail, alt, width: 128, height: 128, loading: file ? "lazy" : null, decoding: "async" });
  element.addEventListener("error", () => {
    if (thumbnail && element.getAttribute("src") !== thumbnail) element.src = thumbnail;
    else element.replaceWith(make("span", { class: "no-picture" }, "not in this page"));
  });
  return element;
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
  return portraitsOf(rows, row).map((portrait) => source(rows, portrait));
}

function source(rows, portrait, full = false) {
  const [id, thumbnail] = rows.portraits[portrait];
  const file = full ? rows.sources[portrait] : "";
  if (!thumbnail && !file) return make("span", { class: "no-picture" }, rows.redact === "omit" ? "source omitted" : "source not in this page");
  return image(thumbnails(thumbnail), file, `source: portrait ${id}`);
}

function labelsOf(rows, labels) {
  return labels.map((level, index) => make("span", { class: "label" }, `${rows.factors[index].replaceAll("_", " ")}: ${level || "no label"}`));
}

// A slider for each edit of one person; side by side where there are two people, or a picture is missing.
function beforeAndAfter(rows, row, edits) {
  const named = (edit) => (rows.arms.length > 1 ? rows.arms[rows.column.arm[edit]] : "edit");
  const figure = (what, name, shown) => make("figure", { class: what }, shown, make("figcaption", {}, name));
  const people = portraitsOf(rows, row);
  // Both in full or neither: a sharper picture would look like the editor's doing.
  const full = Boolean(rows.sources[people[0]]);
  const alike = edits.every((edit) => picture(rows, edit) && Boolean(rows.column.file[edit]) === full);
  if (people.length === 1 && rows.portraits[people[0]][1] && alike) {
    return edits.map((edit) => {
      const compare = make("div", { class: "compare" }, figure("before", "source", source(rows, people[0], full)), figure("after", named(edit), picture(rows, edit, "edit", full)));
      const range = make("label", { class: "slide" }, "Drag, or use the arrow keys", make("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": `Share of the source before ${named(edit)}` }));
      slidePictures(compare, range);
      return make("div", {}, compare, range);
    });
  }
  return [...people.map((portrait) => figure(null, "source", source(rows, portrait, true))), ...edits.map((edit) => figure(null, named(edit), picture(rows, edit, "edit", true) ?? noPicture(rows, edit)))];
}

function lookDialog(rows, armsOf, onlyPortrait) {
  const dialog = find("look");
  let order = [], now = 0;

  const step = (by) => {
    const next = order[(order.indexOf(now) + by + order.length) % order.length];
    if (next === undefined) return;
    draw(next);
    dialog.querySelector("[autofocus]").focus();
    dialog.scrollTop = 0;
  };
  const draw = (row) => {
    now = row;
    const edits = armsOf(row), arms = rows.arms.length > 1;
    const [id, , ...labels] = rows.portraits[rows.column.portrait[row]];
    const [promptId, prompt] = rows.prompts[rows.column.prompt[row]];
    const judged = rows.scores.map((_, index) => index).filter((index) => edits.some((edit) => rows.column[`rating${index}`][edit] !== 0));
    const remarks = edits.flatMap((edit) => (rows.remarks[edit] ?? []).map((remark) => [edit, ...remark]));
    dialog.replaceChildren(
      make("header", {},
        make("h2", { id: "look-title" }, `Portrait ${id}`),
        make("p", {}, mark(rows, row), make("b", {}, rows.editors[rows.column.editor[row]]), ` · ${promptId} “${prompt}”`),
        make("p", { class: "labels" }, ...labelsOf(rows, labels))),
      // Above the pictures: a dialog scrolls to the control that has the focus.
      make("p", { class: "steps" },
        make("button", { type: "button", class: "more", onclick: () => step(-1) }, "← Previous"),
        make("button", { type: "button", class: "more", onclick: () => step(1) }, "Next →"),
        make("button", { type: "button", class: "more", onclick: () => { dialog.close(); onlyPortrait(id); } }, "All edits of this portrait"),
        make("button", { type: "button", class: "more", autofocus: true, onclick: () => dialog.close() }, "Close")),
      make("div", { class: "large" },
        ...beforeAndAfter(rows, row, edits)),
      make("table", {},
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Axis"), make("th", { scope: "col" }, "Judge"), ...edits.map((edit) => make("th", { scope: "col", class: "n" }, arms ? rows.arms[rows.column.arm[edit]] : "Answer")))),
        make("tbody", {}, ...judged.map((index) => make("tr", {}, make("th", { scope: "row" }, rows.byAxis[rows.scores[index].axis].title), make("td", {}, rows.scores[index].judge), ...edits.map((edit) => make("td", { class: "n" }, answer(rows, index, edit))))))),
      remarks.length ? make("dl", { class: "facts" }, ...remarks.map(([edit, who, axis, text]) =>
        make("div", {}, make("dt", {}, [who, arms ? rows.arms[rows.column.arm[edit]] : "", axis ? rows.byAxis[axis]?.title ?? axis : ""].filter(Boolean).join(", ")), make("dd", {}, text)))) : null,
      make("p", { class: "note" }, "Key ", make("code", {}, edits.map((edit) => rows.keys[edit]).join(" "))),
    );
  };
  dialog.addEventListener("keydown", (event) => {
    if (event.target.type === "range") return;
    if (event.key === "ArrowRight") step(1);
    if (event.key === "ArrowLeft") step(-1);
  });
  return {
    within: (rowsInOrder) => { order = rowsInOrder; },
    open: (row) => {
      draw(row);
      dialog.showModal();
      dialog.scrollTop = 0;
    },
  };
}

// One instruction, every group: a matched portrait of each.
function sideBySide(rows, look) {
  const content = find("grid"), form = find("grid-choice");
  if (!rows.grid || !content) return;
  const { levels, portraits, prompts, rows: choices, factor } = rows.grid;
  const name = ([editor, arm]) => (rows.arms.length > 1 ? `${rows.editors[editor]} · ${rows.arms[arm]}` : rows.editors[editor]);
  const draw = (chosen) => {
    const cell = (row) => (row < 0 ? make("span", { class: "no-picture" }, "no edit")
      : make("button", { type: "button", class: "look", "aria-label": `Look at ${rows.portraits[rows.column.portrait[row]][0]}`, onclick: () => look.open(row) }, picture(rows, row) ?? noPicture(rows, row)));
    content.replaceChildren(make("table", { class: "side-by-side" },
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, factor), ...levels.map((level) => make("th", { scope: "col" }, level)))),
      make("tbody", {},
        make("tr", {}, make("th", { scope: "row" }, "Source"), ...portraits.map((portrait) => make("td", {}, source(rows, portrait)))),
        ...prompts.map((prompt, index) => make("tr", {}, make("th", { scope: "row" }, make("b", {}, rows.prompts[prompt][0]), ` ${rows.prompts[prompt][1].slice(0, 60)}`), ...chosen[2][index].map((row) => make("td", {}, cell(row))))))));
  };
  const list = make("select", { name: "treatment" }, ...choices.map((choice, index) => make("option", { value: index }, name(choice))));
  list.addEventListener("change", () => draw(choices[Number(list.value)]));
  list.id = "ask-treatment";
  form.append(make("div", { class: "field" }, make("label", { for: list.id }, "Editor"), list));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = choices.length < 2;
  if (choices.length) draw(choices[0]);
}
