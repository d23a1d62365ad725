// Shared by the other scripts: the data, HTML elements, numbers as text, colours.

/** Return the data of the page, which are compressed if large. */
async function readData(script) {
  if (script.type === "application/json") return JSON.parse(script.textContent);
  const compressed = new Blob([decodeBase64(script.textContent)]).stream();
  return new Response(compressed.pipeThrough(new DecompressionStream("gzip"))).json();
}

function decodeBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

const byId = (id) => document.getElementById(id);
const DATA = await readData(byId("data")).catch((error) => {
  byId("loading").textContent = `This page cannot unpack its data: ${error.message}`;
  throw error;
});
DATA.runs.forEach((run, i) => {
  run.number = i + 1;
  run.letter = i < 26 ? String.fromCharCode(65 + i) : `${i + 1}`;
});
const RUNS = DATA.runs.filter((run) => run.bin_count);
const HAS_SEVERAL_RUNS = DATA.runs.length > 1;

/** Return a new element. Text from the data is never parsed as HTML. */
function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (key === "text") element.textContent = value;
    else if (key === "colour") element.style.color = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return a row of a table; cells are text or elements. */
const tableRow = (head, cells) =>
  el("tr", {}, el("th", { scope: "row" }, head), ...cells.map((cell) => el("td", {}, cell)));

/** Return a link that selects a step or a machine of a run. */
function link(text, run, target) {
  const fields = HAS_SEVERAL_RUNS ? { run: run.number, ...target } : target;
  return el("a", { text, href: `#${new URLSearchParams(fields)}` });
}

const addLetter = (run, label) => (HAS_SEVERAL_RUNS ? `${run.letter} ${label}` : label);
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const plural = (count, noun) => `${formatWhole(count)} ${noun}${count === 1 ? "" : "s"}`;
const formatMachine = (run, n) => (run.hosts[n - 1] ? `${n} (${run.hosts[n - 1]})` : `${n}`);
const isKnown = (value) => value !== null && value !== undefined;

/** Return how many of these ascending numbers are less than a bound. */
function countBelow(numbers, bound) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < bound) low = middle + 1;
    else high = middle;
  }
  return low;
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const formatWhole = (x) => (isKnown(x) ? WHOLE.format(x || 0) : "–"); // never -0

/** Return a function that formats numbers in the largest suitable unit. */
function unitFormatter(units) {
  return (x) => {
    if (!isKnown(x)) return "–";
    if (x === 0) return "0";
    const [factor, unit] = units.find(([size]) => Math.abs(x) >= size) ?? units.at(-1);
    return `${SHORT.format(x / factor)}\u00a0${unit}`;
  };
}

/** Functions that format values on axes, in legends and for screen readers. */
const UNITS = {
  seconds: unitFormatter([[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]]),
  bytes: unitFormatter([[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]),
  rate: unitFormatter([[1e9, "G/s"], [1e6, "M/s"], [1e3, "k/s"], [1, "/s"]]),
  percent: (x) => (isKnown(x) ? `${SHORT.format(+(100 * x).toPrecision(3))}\u00a0%` : "–"),
  number(x) {
    const isDecimal = !x || (Math.abs(x) >= 1e-3 && Math.abs(x) < 1e6);
    return isDecimal ? SHORT.format(x ?? NaN).replace("NaN", "–") : (+x.toPrecision(3)).toExponential();
  },
};

// The style sheet defines all colours, light and dark. Canvases need their current values.
const root = document.documentElement;
const redraws = []; // functions to call when colours change
const SERIES_COLOURS = 8;
let cachedColours = new Map();

/** Redraw everything in the current colours, which are light in print. */
function repaint(isPrinting = false) {
  root.classList.toggle("printing", isPrinting);
  cachedColours = new Map();
  redraws.forEach((redraw) => redraw());
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => repaint());
addEventListener("beforeprint", () => repaint(true));
addEventListener("afterprint", () => repaint());

/** Return the current value of a CSS colour such as `var(--name)`. */
function currentColour(text) {
  if (!cachedColours.has(text)) {
    byId("probe").style.color = text;
    cachedColours.set(text, getComputedStyle(byId("probe")).color);
  }
  return cachedColours.get(text);
}

const seriesColour = (i) => `var(--series-${i % SERIES_COLOURS})`;
const themeColour = (item) => `light-dark(${item.colour}, ${item.dark})`;
const GLYPHS = { x: "✕", "^": "▲", v: "▼", o: "●", d: "◆", s: "■", ">": "▶", "<": "◀", _: "–" };
const glyphOf = (kind) => GLYPHS[kind.mark] ?? kind.mark;
const describeKind = (kind) => kind?.predicate || "other";
const eventMark = (kind) =>
  el("span", { class: "glyph", "aria-hidden": "true", colour: themeColour(kind), text: glyphOf(kind) });

/** Set the size of a canvas in CSS pixels, at the resolution of the screen; return its context. */
function resizeCanvas(canvas, width, height) {
  const ratio = Math.max(devicePixelRatio, 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = FONT;
  return context;
}
