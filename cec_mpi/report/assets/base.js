// What the other files stand on: the data, elements, numbers as text, what outlives a reload.

/** The data, which are packed where they are large. */
async function unpacked(script) {
  if (script.type === "application/json") return JSON.parse(script.textContent);
  const packed = new Blob([bytesOf(script.textContent)]).stream();
  return new Response(packed.pipeThrough(new DecompressionStream("gzip"))).json();
}

const byId = (id) => document.getElementById(id);
const DATA = await unpacked(byId("data")).catch((problem) => {
  byId("loading").textContent = `This page cannot unpack its data: ${problem.message}`;
  throw problem;
});
const RUNS = DATA.runs;
const LETTERS = RUNS.map((_, i) => (i < 26 ? String.fromCharCode(65 + i) : `${i + 1}`));

/** Make an element. Text of the data only ever comes in as `text` or as a child. */
function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") element.textContent = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A table in a box that scrolls; where it is narrow, each row becomes a card. */
function table({ caption, hidden = false, names, rows, kind = "numbers" }) {
  const body = el("tbody", {}, ...rows);
  const head = el("tr", {}, ...names.map((text) => el("th", { scope: "col", text })));
  const made = el("table", { class: `${kind} cards` }, el("caption", { class: hidden ? "unseen" : null, text: caption }), el("thead", {}, head), body);
  return { box: el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, made), body };
}

/** A cell of such a table: on a card its label stands before it. */
function cell(label, text, kind = null) {
  const made = el("td", { class: kind, "data-label": label });
  made.append(text ?? "");
  return made;
}

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const wordsOf = (kind) => kind?.words || "other";
const plural = (n, one, more = `${one}s`) => `${whole(n)} ${n === 1 ? one : more}`;

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

function whole(x) {
  return x === null || x === undefined ? "–" : WHOLE.format(x === 0 ? 0 : x); // never -0
}

/** A number with four digits that count, whatever its size. */
function short(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  const size = Math.abs(x);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? (+x.toPrecision(3)).toExponential() : SHORT.format(x);
}

function scaled(x, scales) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  const size = Math.abs(x);
  const [factor, unit] = scales.find(([least]) => size >= least) ?? scales.at(-1);
  return `${SHORT.format(+(x / factor).toPrecision(4))}\u00a0${unit}`;
}

/** How values of a kind are written: on axes, in legends, in what is read aloud. */
const UNITS = {
  seconds(x) {
    if (x === 0) return "0";
    if (Math.abs(x) >= 600) {
      const hours = Math.floor(x / 3600);
      const minutes = Math.round((x % 3600) / 60);
      return hours ? `${whole(hours)}\u00a0h ${minutes}\u00a0min` : `${minutes}\u00a0min`;
    }
    return scaled(x, [[1, "s"], [1e-3, "ms"], [0, "µs"]].map(([f, u]) => [f || 1e-6, u]));
  },
  bytes(x) {
    return x === 0 ? "0" : scaled(x, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
  },
  rate: (x) => (x === 0 ? "0" : scaled(x, [[1e9, "G/s"], [1e6, "M/s"], [1e3, "k/s"], [1, "/s"]])),
  percent: (x) => (x === null || x === undefined ? "–" : `${SHORT.format(+(100 * x).toPrecision(3))}\u00a0%`),
  number: short,
};

/** What outlives a reload of this page in this tab. */
const kept = {
  get(key, otherwise = null) {
    try {
      return JSON.parse(sessionStorage.getItem(`${location.pathname} ${key}`)) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  set(key, value) {
    try {
      sessionStorage.setItem(`${location.pathname} ${key}`, JSON.stringify(value));
    } catch {
      // Without storage a reload begins at the top.
    }
  },
};

/** Say something to whoever listens to the page instead of looking at it. */
let saying = 0;
function say(text) {
  clearTimeout(saying);
  saying = setTimeout(() => (byId("said").textContent = text), 250);
}

/** How many numbers, of some in order, are below one. */
function placeOf(x, least) {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}
