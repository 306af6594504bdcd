"use strict";
// The packed rows, unpacked once, then filtered and counted here. Strings become text, never markup.

const find = (id) => document.getElementById(id);

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };
const EDITED = 1, REFUSED = 2, FAILED = 3, RATED = 1;
const OUTCOMES = ["not edited yet", "edited", "refused", "failed"];
const RATINGS = ["not judged", "rated", "abstained", "judge failed"];
const TIMES = " × ";

async function unpack() {
  const letters = atob(find("packed").textContent);
  const bytes = new Uint8Array(letters.length);
  for (let index = 0; index < letters.length; index += 1) bytes[index] = letters.charCodeAt(index);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  const start = 8 + Math.ceil(size / 8) * 8;
  const columns = {};
  for (const [name, kind, offset] of header.columns) columns[name] = new KINDS[kind](buffer, start + offset, header.rows);
  const byAxis = Object.fromEntries(header.scores.map((score) => [score.axis, score]));
  return { ...header, byAxis, column: columns };
}

const thumbnails = (() => {
  let contents = null;
  return (index) => {
    contents ??= JSON.parse(find("thumbnails").textContent);
    return index ? `data:image/webp;base64,${contents[index - 1]}` : "";
  };
})();

// A quantity's value on a row: NaN where there is none.
function reader(rows, quantity) {
  const { state } = rows.column;
  if (quantity.score === null) {
    const counted = quantity.name === "failed" ? [EDITED, REFUSED, FAILED] : [EDITED, REFUSED];
    const outcome = quantity.name === "failed" ? FAILED : REFUSED;
    return (row) => (counted.includes(state[row]) ? Number(state[row] === outcome) : NaN);
  }
  const value = rows.column[`score${quantity.score}`], rating = rows.column[`rating${quantity.score}`];
  const rated = (row) => state[row] === EDITED && rating[row] === RATED;
  if (!quantity.rate) return (row) => (rated(row) ? value[row] : NaN);
  // The rows are stored in single precision, so the cut must be too.
  const least = quantity.atLeast === null ? -Infinity : Math.fround(quantity.atLeast);
  const most = quantity.atMost === null ? Infinity : Math.fround(quantity.atMost);
  return (row) => (rated(row) ? Number(value[row] >= least && value[row] <= most) : NaN);
}

// As `numbers.number` writes it.
function formatted(quantity, value) {
  if (Number.isNaN(value)) return "–";
  const sign = quantity.plus && value > 0 ? "+" : "";
  const text = quantity.rate ? `${(100 * value).toFixed(1)} %` : `${value.toFixed(quantity.digits)} ${quantity.symbol}`.trim();
  return (sign + text).replace(/^-(?=0[.0]*( |$))/, "").replace("-", "−");
}

// One judge's answer on one row, in words where the scale has them.
function answer(rows, index, row, { brief = false } = {}) {
  const score = rows.scores[index], value = rows.column[`score${index}`][row], rating = rows.column[`rating${index}`][row];
  if (rating !== RATED) return RATINGS[rating];
  if (score.short.length && Number.isInteger(value)) return `${value} · ${brief ? score.short[value - 1].split(",")[0] : score.short[value - 1]}`;
  return formatted(rows.byAxis[score.axis], value);
}

// From 0, as it should be, upwards; what is below the smallest effect that matters is as it should be.
function distance(rows, index, row) {
  const score = rows.scores[index], value = rows.column[`score${index}`][row];
  if (rows.column[`rating${index}`][row] !== RATED || rows.column.state[row] !== EDITED) return -1;
  if (score.cut !== null) return Number(value <= Math.fround(score.cut));
  if (!score.scale && Math.abs(value - (score.unchanged ?? 0)) < score.smallest) return 0;
  if (score.unchanged === null) return score.scale ? (5 - value) / 4 : value / score.largest;
  return Math.abs(value - score.unchanged) / (score.scale ? Math.max(5 - score.unchanged, score.unchanged - 1) : score.largest);
}

// Judges more than a point apart on any scale: people should look.
function disagreement(rows) {
  const byAxis = new Map();
  rows.scores.forEach((score, index) => {
    if (score.scale && score.part) byAxis.set(score.axis, [...(byAxis.get(score.axis) ?? []), index]);
  });
  const axes = [...byAxis.values()].filter((indices) => indices.length > 1);
  if (!axes.length) return null;
  return (row) =>
    axes.some((indices) => {
      const rated = indices.filter((index) => rows.column[`rating${index}`][row] === RATED);
      const values = rated.map((index) => rows.column[`score${index}`][row]);
      return values.length > 1 && Math.max(...values) - Math.min(...values) > 1 + 1e-6;
    });
}

// The rows of the same request under every arm, seed by seed.
function sameRequest(rows) {
  const { portrait, prompt, editor, arm } = rows.column;
  const requests = new Map(), byRow = new Array(rows.rows), seen = new Map();
  for (let row = 0; row < rows.rows; row += 1) {
    const cell = `${portrait[row]} ${prompt[row]} ${editor[row]}`;
    const seed = seen.get(`${cell} ${arm[row]}`) ?? 0;
    seen.set(`${cell} ${arm[row]}`, seed + 1);
    const key = `${cell} ${seed}`;
    if (!requests.has(key)) requests.set(key, []);
    requests.get(key).push(row);
    byRow[row] = requests.get(key);
  }
  return (row) => byRow[row];
}

function levelsOf(rows, factor) {
  const indices = factor.split(TIMES).map((name) => rows.factors.indexOf(name));
  return (row) => indices.map((index) => rows.portraits[rows.column.portrait[row]][index + 2] ?? "").join(TIMES);
}
