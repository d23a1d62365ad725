// Which steps are looked at: the window that map and charts share, and the step picked in it.

const view = { first: 0, last: 0, from: 0, to: 0, step: null, machine: 1, hasMachine: false, run: 0 };
const watchers = { window: [], step: [], hover: [] };
let hovered = null;
let pointed = null; // the machine of a row or a line that is pointed at
let waiting = null;

const lastOf = (run) => (run.bins ? Math.max(run.first + run.steps - 1, run.at[run.bins - 1]) : run.first);

/** Call this when the window, the step or what is pointed at changes; once a frame at most. */
function when(what, call) {
  watchers[what].push(call);
}

function changed(what) {
  if (!waiting) {
    waiting = new Set();
    requestAnimationFrame(() => {
      const now = waiting;
      waiting = null;
      for (const each of ["window", "step", "hover"]) {
        if (now.has(each)) for (const call of watchers[each]) call();
      }
    });
  }
  waiting.add(what);
}

/** The bin that a step is in; -1 outside of the run. */
function binOf(run, step) {
  return step > lastOf(run) ? -1 : placeOf(run.at, step + 1) - 1;
}

/** The first and last step of a bin. */
function stepsOf(run, bin) {
  const next = bin + 1 < run.bins ? run.at[bin + 1] - 1 : lastOf(run);
  return [run.at[bin], Math.max(next, run.at[bin])];
}

const narrowest = () => Math.min(view.last - view.first + 1, 4 * Math.max(...RUNS.map((run) => run.bin), 1));
const isWhole = () => view.from <= view.first - 0.5 && view.to >= view.last + 0.5;

function setWindow(from, to) {
  const width = clamp(to - from, narrowest(), view.last - view.first + 1);
  const middle = (from + to) / 2;
  view.from = clamp(middle - width / 2, view.first - 0.5, view.last + 0.5 - width);
  view.to = view.from + width;
  remember();
  changed("window");
}

function zoom(factor, centre = view.step ?? (view.from + view.to) / 2) {
  const at = clamp(centre, view.from, view.to);
  setWindow(at - (at - view.from) * factor, at + (view.to - at) * factor);
}

const pan = (part) => setWindow(...[view.from, view.to].map((x) => x + part * (view.to - view.from)));
const showAll = () => setWindow(view.first - 0.5, view.last + 0.5);

/** Pick a step, and move the window to it where it lies outside. */
function setStep(step, { reveal = true } = {}) {
  view.step = clamp(Math.round(step), view.first, view.last);
  if (reveal && (view.step < view.from || view.step > view.to)) {
    const half = (view.to - view.from) / 2;
    setWindow(view.step - half, view.step + half);
  }
  remember();
  changed("step");
}

function setHover(step) {
  if (hovered === step) return;
  hovered = step;
  changed("hover");
}

/** Pick a machine: the map reads it, the chart of speeds sets it off. */
function setMachine(machine) {
  view.machine = machine;
  view.hasMachine = true;
  changed("step");
}

function pointAt(machine) {
  if (pointed === machine) return;
  pointed = machine;
  changed("hover");
}

/** Whose speed stands out: of whom is pointed at, or picked, or heads the table; null: of nobody. */
function outstanding(run, otherwise) {
  const machine = pointed ?? (view.hasMachine ? view.machine : otherwise);
  return machine !== null && machine <= run.machines ? machine : null;
}

/** The step whose values are shown: pointed at, else picked. */
const shownStep = () => hovered ?? view.step;

/** The address keeps what is looked at, so that a reload, or a link, shows the same. */
function remember() {
  const words = new URLSearchParams();
  if (!isWhole()) {
    words.set("from", Math.ceil(view.from));
    words.set("to", Math.floor(view.to));
  }
  if (view.step !== null) words.set("step", view.step);
  if (view.run) words.set("run", view.run + 1);
  clearTimeout(remember.later);
  remember.later = setTimeout(() => {
    try {
      history.replaceState(null, "", `#${words}`);
    } catch {
      // Some browsers refuse this of a file; the page works without.
    }
  }, 200);
}

function beginView() {
  const filled = RUNS.filter((run) => run.bins);
  view.first = Math.min(...filled.map((run) => run.first));
  view.last = Math.max(...filled.map(lastOf));
  if (!filled.length) view.first = view.last = 0;
  view.from = view.first - 0.5;
  view.to = view.last + 0.5;
  const words = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (words.has(name) && isFinite(words.get(name)) ? +words.get(name) : null);
  if (number("from") !== null && number("to") !== null) setWindow(number("from") - 0.5, number("to") + 0.5);
  view.run = clamp((number("run") ?? 1) - 1, 0, RUNS.length - 1);
  if (number("step") !== null) setStep(number("step"), { reveal: false });
}
