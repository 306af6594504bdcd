"use strict";
// The packed rows: unpacked once, then filtered and counted here. Strings only ever become text, never markup.

const find = (id) => document.getElementById(id);

function make(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };
const EDITED = 1, REFUSED = 2, FAILED = 3, RATED = 1;
const OUTCOMES = ["not edited yet", "edited", "refused", "failed"];
const RATINGS = ["not judged", "rated", "abstained", "judge failed"];
const TIMES = " × ";

async function unpack() {
  const letters = atob(find("packed").textContent);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  const start = 8 + Math.ceil(size / 8) * 8;
  const columns = {};
  for (const [name, kind, offset] of header.columns) columns[name] = new KINDS[kind](buffer, start + offset, header.rows);
  const shownAs = Object.fromEntries(header.scores.map((score) => [score.axis, score]));
  return { ...header, shownAs, column: columns };
}

const thumbnails = (() => {
  let contents = null;
  return (place) => {
    contents ??= JSON.parse(find("thumbnails").textContent);
    return place ? `data:image/webp;base64,${contents[place - 1]}` : "";
  };
})();

// How a quantity is read off a row: NaN where it has no value there.
function reader(rows, quantity) {
  const { state } = rows.column;
  if (quantity.score === null) {
    const whole = quantity.name === "failed" ? [EDITED, REFUSED, FAILED] : [EDITED, REFUSED];
    const counts = quantity.name === "failed" ? FAILED : REFUSED;
    return (row) => (whole.includes(state[row]) ? Number(state[row] === counts) : NaN);
  }
  const value = rows.column[`score${quantity.score}`], rating = rows.column[`rating${quantity.score}`];
  const given = (row) => state[row] === EDITED && rating[row] === RATED;
  if (!quantity.rate) return (row) => (given(row) ? value[row] : NaN);
  // The rows are stored in single precision, so the cut must be too.
  const least = quantity.atLeast === null ? -Infinity : Math.fround(quantity.atLeast);
  const most = quantity.atMost === null ? Infinity : Math.fround(quantity.atMost);
  return (row) => (given(row) ? Number(value[row] >= least && value[row] <= most) : NaN);
}

function shown(quantity, value) {
  if (Number.isNaN(value)) return "–";
  const sign = quantity.plus && value > 0 ? "+" : "";
  const text = quantity.rate ? `${(100 * value).toFixed(1)} %` : `${value.toFixed(quantity.digits)} ${quantity.symbol}`.trim();
  return (sign + text).replace(/^-(?=0[.0]*( |$))/, "").replace("-", "−");
}

// One judge's answer on one row, in words where the scale has them.
function answer(rows, place, row, { brief = false } = {}) {
  const score = rows.scores[place], value = rows.column[`score${place}`][row];
  if (rows.column[`rating${place}`][row] !== RATED) return RATINGS[rows.column[`rating${place}`][row]];
  if (score.short.length && Number.isInteger(value)) return `${value} · ${brief ? score.short[value - 1].split(",")[0] : score.short[value - 1]}`;
  return shown(rows.shownAs[score.axis], value);
}

// From 0, as it should be, upwards: what the gallery calls bad.
function distance(rows, place, row) {
  const score = rows.scores[place], value = rows.column[`score${place}`][row];
  if (rows.column[`rating${place}`][row] !== RATED || rows.column.state[row] !== EDITED) return -1;
  if (score.cut !== null) return Number(value <= Math.fround(score.cut));
  if (score.unchanged === null) return score.scale ? (5 - value) / 4 : value / score.largest;
  return Math.abs(value - score.unchanged) / (score.scale ? Math.max(5 - score.unchanged, score.unchanged - 1) : score.largest);
}

// Judges more than a point apart on any scale: people should look.
function disagreement(rows) {
  const byAxis = new Map();
  rows.scores.forEach((score, place) => {
    if (score.scale && score.part) byAxis.set(score.axis, [...(byAxis.get(score.axis) ?? []), place]);
  });
  const axes = [...byAxis.values()].filter((places) => places.length > 1);
  if (!axes.length) return null;
  return (row) =>
    axes.some((places) => {
      const given = places.filter((place) => rows.column[`rating${place}`][row] === RATED);
      const values = given.map((place) => rows.column[`score${place}`][row]);
      return values.length > 1 && Math.max(...values) - Math.min(...values) > 1 + 1e-6;
    });
}

// Rows of one portrait, instruction and editor under several arms, seed by seed.
function companions(rows) {
  const { portrait, prompt, editor, arm } = rows.column;
  const groups = new Map(), mine = new Array(rows.rows), turns = new Map();
  for (let row = 0; row < rows.rows; row += 1) {
    const cell = `${portrait[row]} ${prompt[row]} ${editor[row]}`;
    const turn = turns.get(`${cell} ${arm[row]}`) ?? 0;
    turns.set(`${cell} ${arm[row]}`, turn + 1);
    const key = `${cell} ${turn}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
    mine[row] = groups.get(key);
  }
  return (row) => mine[row];
}

function levelsOf(rows, factor) {
  const parts = factor.split(TIMES).map((name) => rows.factors.indexOf(name));
  return (row) => parts.map((place) => rows.portraits[rows.column.portrait[row]][place + 2] ?? "").join(TIMES);
}
