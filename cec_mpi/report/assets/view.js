// The range of steps that map and charts show, and the selected step, machine and run.

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const LEFT_MARGIN = 64; // of figures with steps on the horizontal axis
const RIGHT_MARGIN = 30; // holds half of the number of the last step
const AXIS_HEIGHT = 24;

const lastStepOf = (run) => Math.max(run.first_step + run.steps - 1, run.bin_starts.at(-1));
const firstStep = Math.min(...RUNS.map((run) => run.first_step));
const lastStep = Math.max(...RUNS.map(lastStepOf));
const view = { from: firstStep - 0.5, to: lastStep + 0.5, step: null, machine: null, run: RUNS[0] };
const listeners = { range: [], selection: [] };
let hoveredStep = null;
let pendingChanges = null;

/** Call a function, at most once per frame, when the range or the selection changes. */
const onChange = (change, listener) => listeners[change].push(listener);
function notify(change) {
  if (!pendingChanges) {
    pendingChanges = new Set();
    requestAnimationFrame(() => {
      const changes = pendingChanges;
      pendingChanges = null;
      for (const name of ["range", "selection"]) {
        if (changes.has(name)) listeners[name].forEach((listener) => listener());
      }
    });
  }
  pendingChanges.add(change).add("selection");
  clearTimeout(updateAddress.timer);
  updateAddress.timer = setTimeout(updateAddress, 200);
}

const showsAll = () => view.to - view.from >= lastStep - firstStep + 1;

function setRange(from, to) {
  const minWidth = Math.min(lastStep - firstStep + 1, 4 * Math.max(...RUNS.map((run) => run.bin_width)));
  const width = clamp(to - from, minWidth, lastStep - firstStep + 1);
  view.from = clamp((from + to - width) / 2, firstStep - 0.5, lastStep + 0.5 - width);
  view.to = view.from + width;
  notify("range");
}

const showAll = () => setRange(firstStep - 0.5, lastStep + 0.5);

function zoom(factor, centre = view.step ?? (view.from + view.to) / 2) {
  const anchor = clamp(centre, view.from, view.to);
  setRange(anchor - (anchor - view.from) * factor, anchor + (view.to - anchor) * factor);
}

/** Select a step, and scroll to it if necessary. */
function selectStep(step) {
  view.step = clamp(Math.round(step), firstStep, lastStep);
  const half = (view.to - view.from) / 2;
  if (view.step < view.from || view.step > view.to) setRange(view.step - half, view.step + half);
  notify("selection");
}

function selectMachine(machine) {
  view.machine = clamp(Math.round(machine), 1, Math.max(...RUNS.map((run) => run.machines)));
  notify("selection");
}

/** Return the step whose values are shown: the one under the pointer, or the selected one. */
const currentStep = () => hoveredStep ?? view.step;

/** Store the view in the address, so that a reload or a link shows the same. */
function updateAddress() {
  const fields = showsAll() ? {} : { from: Math.ceil(view.from), to: Math.floor(view.to) };
  for (const name of ["step", "machine"]) if (view[name] !== null) fields[name] = view[name];
  if (HAS_SEVERAL_RUNS) fields.run = view.run.number;
  history.replaceState(null, "", `#${new URLSearchParams(fields)}`);
}

/** Set the view from the address. */
function readAddress() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (fields.has(name) && isFinite(fields.get(name)) ? +fields.get(name) : null);
  view.run = RUNS.find((run) => run.number === number("run")) ?? view.run;
  if (number("from") !== null && number("to") !== null) setRange(number("from") - 0.5, number("to") + 0.5);
  if (number("machine") !== null) selectMachine(number("machine"));
  if (number("step") !== null) selectStep(number("step"));
}

/** Return the first and the last step of a bin. */
function stepsOfBin(run, bin) {
  const end = bin + 1 < run.bin_count ? run.bin_starts[bin + 1] - 1 : lastStepOf(run);
  return [run.bin_starts[bin], Math.max(end, run.bin_starts[bin])];
}

/** Return the middle of each bin, as a step that may be a fraction. */
function binCentres(run) {
  run.binCentres ??= run.bin_starts.map((_, bin) => (stepsOfBin(run, bin)[0] + stepsOfBin(run, bin)[1]) / 2);
  return run.binCentres;
}

/** Return the events of steps `from` to `to`; `run.events` is sorted by step. */
function eventsBetween(run, from, to) {
  run.eventSteps ??= run.events.map(([step]) => step);
  return run.events.slice(countBelow(run.eventSteps, from), countBelow(run.eventSteps, to + 1));
}

/** Return the horizontal position of a step in a figure of this width. */
const xOf = (step, width) => LEFT_MARGIN + ((step - view.from) / (view.to - view.from)) * axisWidth(width);
const axisWidth = (width) => width - LEFT_MARGIN - RIGHT_MARGIN;

/** Return about `count` round numbers between two numbers. */
function ticks(from, to, count) {
  const minGap = Math.max((to - from) / Math.max(count, 1), 1);
  const power = 10 ** Math.floor(Math.log10(minGap));
  const gap = [1, 2, 5, 10].find((n) => n * power >= minGap) * power;
  const begin = Math.ceil(from / gap);
  return Array.from({ length: Math.floor(to / gap) - begin + 1 }, (_, i) => (begin + i) * gap);
}

/** Return the steps to label on the axis of a figure of this width, including the last. */
function axisSteps(width) {
  const end = Math.floor(view.to);
  const labelWidth = ((view.to - view.from) / axisWidth(width)) * (12 + 8 * formatWhole(end).length);
  return [...ticks(view.from, view.to, width / 110).filter((step) => end - step > labelWidth), end];
}

/** Add marks of the selected and the hovered step to a figure, and let users drag to zoom. */
function addOverlay(element, height) {
  const marks = ["selected", "hovered", "dragged"].map((name) => el("div", { class: `mark ${name}`, hidden: "" }));
  const [selected, hovered, dragged] = marks;
  element.classList.add("frame");
  element.append(...marks);
  const moveMark = (mark, step) => {
    mark.hidden = step === null || step < view.from || step > view.to;
    mark.style.transform = `translateX(${xOf(step ?? 0, element.clientWidth)}px)`;
    mark.style.height = `${height}px`;
  };
  const redraw = () => (moveMark(selected, view.step), moveMark(hovered, hoveredStep));
  onChange("selection", redraw);
  new ResizeObserver(redraw).observe(element);

  let dragStart = null;
  const xOfPointer = ({ clientX }) => {
    const x = clientX - element.getBoundingClientRect().left;
    return clamp(x, LEFT_MARGIN, element.clientWidth - RIGHT_MARGIN);
  };
  const stepAt = (x) => view.from + ((x - LEFT_MARGIN) / axisWidth(element.clientWidth)) * (view.to - view.from);
  const hover = (step) => ((hoveredStep = step), notify("selection"));
  const endDrag = () => ((dragStart = null), (dragged.hidden = true));
  element.addEventListener("pointermove", (event) => {
    const x = xOfPointer(event);
    hover(clamp(Math.round(stepAt(x)), firstStep, lastStep));
    if (dragStart === null) return;
    dragged.hidden = Math.abs(x - dragStart) < 5;
    const [left, width] = [Math.min(x, dragStart), Math.abs(x - dragStart)];
    Object.assign(dragged.style, { left: `${left}px`, width: `${width}px`, height: `${height}px` });
  });
  element.addEventListener("pointerleave", () => (hover(null), endDrag()));
  element.addEventListener("pointerdown", (event) => {
    if (event.isPrimary && !event.button) dragStart = xOfPointer(event);
  });
  element.addEventListener("pointerup", (event) => {
    const [from, to] = [dragStart ?? xOfPointer(event), xOfPointer(event)].sort((a, b) => a - b);
    if (to - from >= 5) setRange(stepAt(from), stepAt(to));
    else selectStep(stepAt(to));
    endDrag();
  });
  element.addEventListener("dblclick", showAll);
}
