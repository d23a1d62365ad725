// Which steps are looked at: the window that map and charts share, the step and machine picked.

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const LEFT = 64; // of what is drawn along the steps
const RIGHT = 30; // room for the last step's number
const AXIS = 24; // height of the axis of steps

const lastOf = (run) => Math.max(run.first + run.steps - 1, run.at.at(-1));
const first = Math.min(...RUNS.map((run) => run.first));
const last = Math.max(...RUNS.map(lastOf));
const view = { from: first - 0.5, to: last + 0.5, step: null, machine: null, run: RUNS[0] };
const calls = { window: [], step: [] };
let hovered = null;
let pending = null;

/** Call this when the window, or what is picked or pointed at, changes; once a frame at most. */
const when = (what, call) => calls[what].push(call);
function changed(what) {
  if (!pending) {
    pending = new Set();
    requestAnimationFrame(() => {
      const now = pending;
      pending = null;
      for (const each of ["window", "step"]) if (now.has(each)) calls[each].forEach((call) => call());
    });
  }
  pending.add(what).add("step");
  clearTimeout(remember.later);
  remember.later = setTimeout(remember, 200);
}

const isWhole = () => view.to - view.from >= last - first + 1;

function setWindow(from, to) {
  const narrowest = Math.min(last - first + 1, 4 * Math.max(...RUNS.map((run) => run.bin)));
  const width = clamp(to - from, narrowest, last - first + 1);
  view.from = clamp((from + to - width) / 2, first - 0.5, last + 0.5 - width);
  view.to = view.from + width;
  changed("window");
}

const showAll = () => setWindow(first - 0.5, last + 0.5);

function zoom(factor, centre = view.step ?? (view.from + view.to) / 2) {
  const at = clamp(centre, view.from, view.to);
  setWindow(at - (at - view.from) * factor, at + (view.to - at) * factor);
}

/** Pick a step, and move the window to it where it lies outside. */
function setStep(step) {
  view.step = clamp(Math.round(step), first, last);
  const half = (view.to - view.from) / 2;
  if (view.step < view.from || view.step > view.to) setWindow(view.step - half, view.step + half);
  changed("step");
}

function setMachine(machine) {
  view.machine = clamp(Math.round(machine), 1, Math.max(...RUNS.map((run) => run.machines)));
  changed("step");
}

/** The step whose values are shown: pointed at, else picked. */
const shownStep = () => hovered ?? view.step;

/** The address keeps what is looked at, so that a reload, or a link, shows the same. */
function remember() {
  const shown = isWhole() ? {} : { from: Math.ceil(view.from), to: Math.floor(view.to) };
  for (const name of ["step", "machine"]) if (view[name] !== null) shown[name] = view[name];
  if (SEVERAL) shown.run = view.run.number;
  history.replaceState(null, "", `#${new URLSearchParams(shown)}`);
}

/** Look at what the address says. */
function follow() {
  const words = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (words.has(name) && isFinite(words.get(name)) ? +words.get(name) : null);
  view.run = RUNS.find((run) => run.number === number("run")) ?? view.run;
  if (number("from") !== null && number("to") !== null) setWindow(number("from") - 0.5, number("to") + 0.5);
  if (number("machine") !== null) setMachine(number("machine"));
  if (number("step") !== null) setStep(number("step"));
}

/** The first and last step of a bin. */
function stepsOf(run, bin) {
  const next = bin + 1 < run.bins ? run.at[bin + 1] - 1 : lastOf(run);
  return [run.at[bin], Math.max(next, run.at[bin])];
}

/** The middle of each bin along the steps. */
function middles(run) {
  run.middles ??= run.at.map((_, bin) => (stepsOf(run, bin)[0] + stepsOf(run, bin)[1]) / 2);
  return run.middles;
}

/** Events of these steps; they are in the order of their steps. */
function eventsBetween(run, from, to) {
  run.eventSteps ??= run.events.map(([step]) => step);
  return run.events.slice(placeOf(run.eventSteps, from), placeOf(run.eventSteps, to + 1));
}

/** Where a step lies in a figure of this width. */
const xOf = (step, width) => LEFT + ((step - view.from) / (view.to - view.from)) * (width - LEFT - RIGHT);

/** Round numbers between two, about so many. */
function ticks(from, to, count) {
  const rough = Math.max((to - from) / Math.max(count, 1), 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const gap = [1, 2, 5, 10].find((n) => n * power >= rough) * power;
  const begin = Math.ceil(from / gap);
  return Array.from({ length: Math.floor(to / gap) - begin + 1 }, (_, i) => (begin + i) * gap);
}

/** Steps that get a number at the foot of a figure of this width; the last one always does. */
function axisSteps(width) {
  const end = Math.floor(view.to);
  const room = ((view.to - view.from) / (width - LEFT - RIGHT)) * (12 + 8 * whole(end).length);
  return [...ticks(view.from, view.to, width / 110).filter((step) => end - step > room), end];
}

/** Lay over a figure the step that is picked, the one that is pointed at, and what is dragged over. */
function overlay(element, height) {
  const marks = ["picked", "pointed", "selected"].map((name) => el("div", { class: `mark ${name}`, hidden: "" }));
  const [picked, pointed, selected] = marks;
  element.classList.add("frame");
  element.append(...marks);
  const place = (mark, step) => {
    mark.hidden = step === null || step < view.from || step > view.to;
    mark.style.transform = `translateX(${xOf(step ?? 0, element.clientWidth)}px)`;
    mark.style.height = `${height}px`;
  };
  const redraw = () => (place(picked, view.step), place(pointed, hovered));
  when("step", redraw);
  new ResizeObserver(redraw).observe(element);

  let start = null;
  const inner = () => element.clientWidth - LEFT - RIGHT;
  const at = (event) => clamp(event.clientX - element.getBoundingClientRect().left, LEFT, LEFT + inner());
  const step = (x) => view.from + ((x - LEFT) / inner()) * (view.to - view.from);
  const hover = (step) => ((hovered = step), changed("step"));
  const end = () => ((start = null), (selected.hidden = true));
  element.addEventListener("pointermove", (event) => {
    hover(clamp(Math.round(step(at(event))), first, last));
    if (start === null) return;
    selected.hidden = Math.abs(at(event) - start) < 5;
    const [left, width] = [Math.min(at(event), start), Math.abs(at(event) - start)];
    Object.assign(selected.style, { left: `${left}px`, width: `${width}px`, height: `${height}px` });
  });
  element.addEventListener("pointerleave", () => (hover(null), end()));
  element.addEventListener("pointerdown", (event) => event.isPrimary && !event.button && (start = at(event)));
  element.addEventListener("pointerup", (event) => {
    const [from, to] = [start ?? at(event), at(event)].sort((a, b) => a - b);
    if (to - from >= 5) setWindow(step(from), step(to));
    else setStep(step(to));
    end();
  });
  element.addEventListener("dblclick", showAll);
}
