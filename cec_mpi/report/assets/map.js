// Availability over time: machines by steps, load as shade, states in colours, events as marks.

const STRIP = 18; // above the machines, for what happened to none of them
const FIRST_SHARE = 16; // cells below say a state, those from it on how much was computed
let largestCell = FIRST_SHARE + 1;
const seenStates = new Set();
const shareOf = (cell) => (cell - FIRST_SHARE) / (255 - FIRST_SHARE);

/** Colours of the 256 values that a cell can have: red, green and blue. */
function cellColours() {
  const canvas = el("canvas", { width: 256, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const shades = context.createLinearGradient(FIRST_SHARE, 0, largestCell, 0);
  shades.addColorStop(0, colour("var(--load-none)"));
  shades.addColorStop(1, colour("var(--load-all)"));
  context.fillStyle = shades;
  context.fillRect(0, 0, 256, 1);
  DATA.states.forEach((state, i) => {
    context.fillStyle = colour(given(state));
    context.fillRect(i, 0, 1, 1);
  });
  return context.getImageData(0, 0, 256, 1).data;
}

/** Add the map of a run: pointer and keys pick a step, whose assignment is shown, and a machine. */
function machineMap(run) {
  const rowHeight = clamp(600 / run.machines, 1, 22);
  const rows = rowHeight * run.machines;
  const canvas = el("canvas", { "aria-hidden": "true" });
  const readout = el("p", { class: "readout" });
  const lane = el("div", { class: "mark lane", hidden: "" });
  const said = { "aria-label": named(run, "Machines by steps"), "aria-describedby": "map-keys" };
  const slider = { role: "slider", tabindex: "0", "aria-valuemin": first, "aria-valuemax": last };
  const acts = {
    onkeydown: pressed,
    onpointermove: (event) => (pointed = machineAt(event)),
    onpointerup: (event) => ((view.run = run), setMachine(machineAt(event))),
  };
  const element = el("div", { class: "map", ...slider, ...said, ...acts }, canvas, lane);
  if (SEVERAL) byId("maps").append(el("h3", { text: `Run ${run.letter}: ${run.name}` }));
  byId("maps").append(element, readout);
  overlay(element, STRIP + rows);
  let pointed = null; // the machine that is pointed at

  function machineAt(event) {
    const y = event.clientY - element.getBoundingClientRect().top - STRIP;
    return clamp(Math.floor(y / rowHeight) + 1, 1, run.machines);
  }

  function draw() {
    const width = element.clientWidth;
    if (!width) return;
    const context = sharp(canvas, width, STRIP + rows + AXIS);
    context.clearRect(0, 0, width, STRIP + rows + AXIS);
    drawCells(context, Math.max(width - LEFT - RIGHT, 1));
    drawMoments(context, width);
    drawEvents(context, width);
    drawAxes(context, width);
  }

  /** Steps that share a pixel are mixed, and never with those of other machines. */
  function drawCells(context, across) {
    const paint = cellColours();
    const wide = (view.to - view.from) / across;
    const bin = (pixel) => (view.from + pixel * wide + 0.5 - run.first) / run.bin;
    const picture = new ImageData(across, run.machines);
    for (let pixel = 0; pixel < across; pixel++) {
      const from = Math.floor(bin(pixel));
      const to = Math.min(Math.max(Math.floor(bin(pixel + 1)), from + 1), run.bins);
      if (from < 0 || from >= to) continue;
      for (let n = 0; n < run.machines; n++) {
        const at = 4 * (n * across + pixel);
        for (let k = from; k < to; k++) {
          const cell = 4 * run.cells[n * run.bins + k];
          for (let part = 0; part < 3; part++) picture.data[at + part] += paint[cell + part] / (to - from);
        }
        picture.data[at + 3] = 255;
      }
    }
    const small = el("canvas", { width: across, height: run.machines });
    small.getContext("2d").putImageData(picture, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, LEFT, STRIP, across, rows);
    if (rowHeight < 6) return;
    context.fillStyle = colour("var(--panel)");
    for (let n = 1; n < run.machines; n++) context.fillRect(LEFT, STRIP + n * rowHeight - 1, across, 2);
  }

  /** Checkpoints, and where a run was resumed. */
  function drawMoments(context, width) {
    const inside = (step) => step > view.from && step < view.to;
    context.fillStyle = colour("var(--muted)");
    for (const step of run.checkpoints.filter(inside)) context.fillRect(xOf(step, width), STRIP - 6, 1, 6);
    context.fillStyle = colour("var(--text)");
    for (const step of run.resumes.filter(inside)) {
      for (let y = 0; y < STRIP + rows; y += 7) context.fillRect(xOf(step - 0.5, width) - 1, y, 1.5, 4);
    }
  }

  /** Marks of one machine on one spot stand below each other: none is to look as if it came later. */
  function drawEvents(context, width) {
    const shown = eventsBetween(run, Math.ceil(view.from), Math.floor(view.to));
    const size = clamp(Math.sqrt((width * rows) / (shown.length + 1)) / 3, 4, 13);
    const spots = new Map();
    for (const [step, kind, machine] of shown) {
      const x = xOf(step, width);
      const place = `${machine} ${Math.round(x / size)}`;
      if (!spots.has(place)) spots.set(place, { x, machine, kinds: new Set() });
      spots.get(place).kinds.add(kind);
    }
    context.font = `${size}px sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 2.5;
    context.strokeStyle = colour("var(--panel)");
    for (const { x, machine, kinds } of spots.values()) {
      const middle = machine ? STRIP + (machine - 0.5) * rowHeight : STRIP / 2;
      const apart = Math.min(size, Math.max(rowHeight - 1, 2) / kinds.size);
      [...kinds].forEach((index, i) => {
        const y = middle + (i - (kinds.size - 1) / 2) * apart;
        context.fillStyle = colour(given(DATA.kinds[index]));
        if (size > 8) context.strokeText(glyphOf(DATA.kinds[index]), x, y);
        context.fillText(glyphOf(DATA.kinds[index]), x, y);
      });
    }
  }

  function drawAxes(context, width) {
    context.font = FONT;
    context.fillStyle = colour("var(--muted)");
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillText("machine", LEFT - 8, STRIP / 2);
    for (const n of ticks(1, run.machines, (run.machines * rowHeight) / 13)) {
      context.fillText(`${n}`, LEFT - 8, STRIP + (n - 0.5) * rowHeight);
    }
    context.textBaseline = "top";
    context.textAlign = "center";
    for (const step of axisSteps(width)) {
      context.fillText(whole(step), xOf(step, width), STRIP + rows + 7);
      context.fillRect(xOf(step, width) - 0.5, STRIP + rows + 1, 1, 4);
    }
  }

  /** What is at the step that is shown, in words beneath the map and for whoever listens. */
  function tell() {
    const step = shownStep();
    const machine = Math.min((hovered !== null && pointed) || (view.machine ?? 1), run.machines);
    lane.hidden = view.machine === null || view.machine > run.machines;
    lane.style.transform = `translateY(${STRIP + (view.machine - 1) * rowHeight}px)`;
    lane.style.height = `${rowHeight}px`;
    const words = step === null ? "Point at a step, or pick one, to read its values here." : wordsAt(step, machine);
    readout.textContent = words;
    if (hovered !== null) return;
    element.setAttribute("aria-valuenow", step ?? first);
    element.setAttribute("aria-valuetext", step === null ? "no step picked" : words);
  }

  function wordsAt(step, machine) {
    const bin = placeOf(run.at, step + 1) - 1;
    if (bin < 0 || step > lastOf(run)) return `Step ${whole(step)}: not in this run`;
    const [from, to] = stepsOf(run, bin);
    const cell = run.cells[(machine - 1) * run.bins + bin];
    const its = eventsBetween(run, from, to).filter((event) => !event[2] || event[2] === machine);
    const events = its.map(([at, kind, , text]) => {
      const when = from === to ? "" : ` at ${whole(at)}`;
      return `${wordsOf(DATA.kinds[kind])}${when}${text ? ` (${text})` : ""}`;
    });
    // A cell whose state is that of an event says nothing more than the event.
    const isSaid = its.some((event) => event[2] && DATA.kinds[event[1]].kind === DATA.states[cell]?.state);
    const share = `${UNITS.percent(shareOf(cell))} of its shard's rows`;
    const state = cell < FIRST_SHARE ? DATA.states[cell]?.words ?? "nothing known" : share;
    const words = [...new Set([...(isSaid ? [] : [state]), ...events])].slice(0, 4);
    const steps = from === to ? `Step ${whole(from)}` : `Steps ${whole(from)}–${whole(to)}`;
    return `${steps} · machine ${machineName(run, machine)}: ${words.join("; ")}`;
  }

  function pressed(event) {
    const from = view.step ?? Math.ceil(view.from);
    const far = Math.max(1, Math.round((view.to - view.from) / 10));
    const moves = {
      ArrowLeft: () => setStep(from - run.bin),
      ArrowRight: () => setStep(view.step === null ? from : from + run.bin),
      PageDown: () => setStep(from + far),
      PageUp: () => setStep(from - far),
      Home: () => setStep(first),
      End: () => setStep(last),
      ArrowUp: () => setMachine((view.machine ?? 1) - 1),
      ArrowDown: () => setMachine((view.machine ?? 1) + 1),
      "+": () => zoom(0.5),
      "-": () => zoom(2),
      0: showAll,
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    view.run = run;
    moves[event.key]();
  }

  tell();
  when("step", tell);
  when("window", draw);
  redraws.push(draw);
  new ResizeObserver(draw).observe(element);
}

/** What the map's colours and marks stand for. */
function mapKey() {
  for (const run of RUNS) {
    run.cells = bytesOf(run.map.cells);
    for (const cell of run.cells) {
      if (cell > largestCell) largestCell = cell;
      if (cell < FIRST_SHARE) seenStates.add(cell);
    }
  }
  const item = (look, text) => byId("map-key").append(el("li", { class: "entry" }, look, text));
  const sample = (kind, paint) => el("span", { class: `sample ${kind}`, colour: paint });
  const used = new Set(RUNS.flatMap((run) => run.events.map((event) => event[1])));
  const any = (name) => RUNS.some((run) => run[name].length);
  DATA.states.forEach((state, i) => seenStates.has(i) && item(sample("layer", given(state)), state.words));
  item(sample("shade"), `computed none to ${UNITS.percent(shareOf(largestCell))} of its shard's rows`);
  DATA.kinds.forEach((kind, i) => used.has(i) && item(markOf(kind), wordsOf(kind)));
  if (any("checkpoints")) item(sample("tick", "var(--muted)"), "checkpoint");
  if (any("resumes")) item(sample("resumed", "var(--text)"), "resumed");
}
