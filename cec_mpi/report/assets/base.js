// What the other files stand on: the data, elements, numbers as text, colours.

/** The data, which are packed where they are large. */
async function unpacked(script) {
  if (script.type === "application/json") return JSON.parse(script.textContent);
  const packed = new Blob([bytesOf(script.textContent)]).stream();
  return new Response(packed.pipeThrough(new DecompressionStream("gzip"))).json();
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

const byId = (id) => document.getElementById(id);
const DATA = await unpacked(byId("data")).catch((problem) => {
  byId("loading").textContent = `This page cannot unpack its data: ${problem.message}`;
  throw problem;
});
DATA.runs.forEach((run, i) => {
  run.number = i + 1;
  run.letter = i < 26 ? String.fromCharCode(65 + i) : `${i + 1}`;
});
const RUNS = DATA.runs.filter((run) => run.bins);
const SEVERAL = DATA.runs.length > 1;

/** Make an element. Text of the data only ever comes in as `text` or as a child. */
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

/** A row of a table: its head is text or an element, and so are its cells. */
const row = (head, cells) =>
  el("tr", {}, el("th", { scope: "row" }, head), ...cells.map((cell) => el("td", {}, cell)));

/** A link to a step or a machine of a run: the address says what is shown. */
const link = (text, run, words) =>
  el("a", { text, href: `#${new URLSearchParams(SEVERAL ? { run: run.number, ...words } : words)}` });

const named = (run, label) => (SEVERAL ? `${run.letter} ${label}` : label);
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;
const machineName = (run, n) => (run.names[n - 1] ? `${n} (${run.names[n - 1]})` : `${n}`);
const isNumber = (y) => y !== null && y !== undefined;

/** How many numbers, of some in order, are below one. */
function placeOf(x, least) {
  let [low, high] = [0, x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const whole = (x) => (isNumber(x) ? WHOLE.format(x || 0) : "–"); // never -0

/** A writer of numbers by the largest unit that they reach. */
function scaled(units) {
  return (x) => {
    if (!isNumber(x)) return "–";
    if (x === 0) return "0";
    const [factor, unit] = units.find(([least]) => Math.abs(x) >= least) ?? units.at(-1);
    return `${SHORT.format(x / factor)}\u00a0${unit}`;
  };
}

/** How values of a kind are written: on axes, in legends, in what is read aloud. */
const UNITS = {
  seconds: scaled([[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]]),
  bytes: scaled([[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]),
  rate: scaled([[1e9, "G/s"], [1e6, "M/s"], [1e3, "k/s"], [1, "/s"]]),
  percent: (x) => (isNumber(x) ? `${SHORT.format(+(100 * x).toPrecision(3))}\u00a0%` : "–"),
  number(x) {
    const isUsual = !x || (Math.abs(x) >= 1e-3 && Math.abs(x) < 1e6);
    return isUsual ? SHORT.format(x ?? NaN).replace("NaN", "–") : (+x.toPrecision(3)).toExponential();
  },
};

// The style sheet has all colours, in light and dark; canvases ask for them here.
const root = document.documentElement;
const redraws = []; // what is drawn again in other colours
const SERIES = 8;
let colours = new Map();

/** On paper everything is light. */
function repaint(printing = false) {
  root.classList.toggle("printing", printing);
  colours = new Map();
  redraws.forEach((call) => call());
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => repaint());
addEventListener("beforeprint", () => repaint(true));
addEventListener("afterprint", () => repaint());

/** What a colour of CSS is now: `var(--name)`, or two of them for light and dark. */
function colour(text) {
  if (!colours.has(text)) {
    byId("probe").style.color = text;
    colours.set(text, getComputedStyle(byId("probe")).color);
  }
  return colours.get(text);
}

const series = (i) => `var(--series-${i % SERIES})`;
const given = (entry) => `light-dark(${entry.colour}, ${entry.dark})`;
const GLYPHS = { x: "✕", "^": "▲", v: "▼", o: "●", d: "◆", s: "■", ">": "▶", "<": "◀", _: "–" };
const glyphOf = (kind) => GLYPHS[kind.mark] ?? kind.mark;
const wordsOf = (kind) => kind?.predicate || "other";
const markOf = (kind) =>
  el("span", { class: "glyph", "aria-hidden": "true", colour: given(kind), text: glyphOf(kind) });

/** A canvas as sharp as the screen: its context, in CSS pixels. */
function sharp(canvas, width, height) {
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
