// Colours: the style sheet has them all, in light and dark; canvases ask for them here.

const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
const redraws = [];
let printing = false;
let colours = new Map();

const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

/** The value of a colour of the style sheet, as it is now. */
function colour(name) {
  if (!colours.has(name)) {
    const probe = byId("probe");
    probe.style.color = `var(--${name})`;
    colours.set(name, getComputedStyle(probe).color);
  }
  return colours.get(name);
}

/** The colour of a kind of event or of a state, which the data brings along. */
function given(entry) {
  const value = (isDark() && entry.dark) || entry.colour;
  return CSS.supports("color", value) ? value : colour("muted");
}

const SERIES = 8;
const seriesColour = (i) => colour(`series-${i % SERIES}`);

/** Call this now and whenever the colours change. */
function drawn(redraw) {
  redraws.push(redraw);
  redraw();
}

function coloursChanged() {
  colours = new Map();
  for (const redraw of redraws) redraw();
}

function setTheme(theme) {
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  kept.set("theme", theme);
  coloursChanged();
}

function beginTheme() {
  const theme = kept.get("theme", "");
  if (theme) root.dataset.theme = theme;
  for (const input of document.querySelectorAll("input[name=theme]")) {
    input.checked = input.value === theme;
    input.addEventListener("change", () => setTheme(input.value));
  }
  system.addEventListener("change", coloursChanged);
}

/** On paper everything is light, and as wide as the paper. */
function beginPrinting(resize) {
  addEventListener("beforeprint", () => {
    printing = true;
    root.classList.add("printing");
    resize();
    coloursChanged();
  });
  addEventListener("afterprint", () => {
    printing = false;
    root.classList.remove("printing");
    resize();
    coloursChanged();
  });
}
