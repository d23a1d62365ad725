// The map of machines by steps: shades show loads, colours show states, marks show events.

const STRIP_HEIGHT = 18; // above the machines, for checkpoints and events without a machine
const FIRST_SHADE = 16; // smaller cells are indices of states, the others are shades of the load
let largestCell = FIRST_SHADE + 1;
const usedStates = new Set();
const loadOf = (cell) => (cell - FIRST_SHADE) / (255 - FIRST_SHADE);

/** Return red, green, blue and alpha for each of the 256 values of a cell. */
function cellColours() {
  const canvas = el("canvas", { width: 256, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const shades = context.createLinearGradient(FIRST_SHADE, 0, largestCell, 0);
  shades.addColorStop(0, currentColour("var(--load-none)"));
  shades.addColorStop(1, currentColour("var(--load-all)"));
  context.fillStyle = shades;
  context.fillRect(0, 0, 256, 1);
  DATA.states.forEach((state, i) => {
    context.fillStyle = currentColour(themeColour(state));
    context.fillRect(i, 0, 1, 1);
  });
  return context.getImageData(0, 0, 256, 1).data;
}

/** Add the map of a run, in which the pointer and keys select a step and a machine. */
function addMap(run) {
  const rowHeight = clamp(600 / run.machines, 1, 22);
  const mapHeight = rowHeight * run.machines;
  const canvas = el("canvas", { "aria-hidden": "true" });
  const readout = el("p", { class: "readout" });
  const lane = el("div", { class: "mark lane", hidden: "" });
  const labels = { "aria-label": addLetter(run, "Machines by steps"), "aria-describedby": "map-keys" };
  const slider = { role: "slider", tabindex: "0", "aria-valuemin": firstStep, "aria-valuemax": lastStep };
  const handlers = {
    onkeydown: handleKey,
    onpointermove: (event) => (hoveredMachine = machineAt(event)),
    onpointerup: (event) => ((view.run = run), selectMachine(machineAt(event))),
  };
  const element = el("div", { class: "map", ...slider, ...labels, ...handlers }, canvas, lane);
  if (HAS_SEVERAL_RUNS) byId("maps").append(el("h3", { text: `Run ${run.letter}: ${run.name}` }));
  byId("maps").append(element, readout);
  addOverlay(element, STRIP_HEIGHT + mapHeight);
  let hoveredMachine = null;

  function machineAt(event) {
    const y = event.clientY - element.getBoundingClientRect().top - STRIP_HEIGHT;
    return clamp(Math.floor(y / rowHeight) + 1, 1, run.machines);
  }

  function draw() {
    const width = element.clientWidth;
    if (!width) return;
    const height = STRIP_HEIGHT + mapHeight + AXIS_HEIGHT;
    const context = resizeCanvas(canvas, width, height);
    context.clearRect(0, 0, width, height);
    drawCells(context, Math.max(axisWidth(width), 1));
    drawCheckpoints(context, width);
    drawEvents(context, width);
    drawAxes(context, width);
  }

  /** Draw the cells; a pixel has the mean colour of its steps, and belongs to one machine. */
  function drawCells(context, width) {
    const colours = cellColours();
    const stepsPerPixel = (view.to - view.from) / width;
    const binAt = (pixel) => (view.from + pixel * stepsPerPixel + 0.5 - run.first_step) / run.bin_width;
    const image = new ImageData(width, run.machines);
    for (let pixel = 0; pixel < width; pixel++) {
      const from = Math.floor(binAt(pixel));
      const to = Math.min(Math.max(Math.floor(binAt(pixel + 1)), from + 1), run.bin_count);
      if (from < 0 || from >= to) continue;
      for (let n = 0; n < run.machines; n++) {
        const offset = 4 * (n * width + pixel);
        for (let bin = from; bin < to; bin++) {
          const cell = 4 * run.cells[n * run.bin_count + bin];
          for (let channel = 0; channel < 3; channel++) {
            image.data[offset + channel] += colours[cell + channel] / (to - from);
          }
        }
        image.data[offset + 3] = 255;
      }
    }
    const unscaled = el("canvas", { width, height: run.machines });
    unscaled.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(unscaled, LEFT_MARGIN, STRIP_HEIGHT, width, mapHeight);
    if (rowHeight < 6) return;
    context.fillStyle = currentColour("var(--panel)");
    for (let n = 1; n < run.machines; n++) context.fillRect(LEFT_MARGIN, STRIP_HEIGHT + n * rowHeight - 1, width, 2);
  }

  /** Draw checkpoints, and dashed lines before the steps at which the run was resumed. */
  function drawCheckpoints(context, width) {
    const isVisible = (step) => step > view.from && step < view.to;
    context.fillStyle = currentColour("var(--muted)");
    for (const step of run.checkpoints.filter(isVisible)) {
      context.fillRect(xOf(step, width), STRIP_HEIGHT - 6, 1, 6);
    }
    context.fillStyle = currentColour("var(--text)");
    for (const step of run.resumptions.filter(isVisible)) {
      const x = xOf(step - 0.5, width) - 1;
      for (let y = 0; y < STRIP_HEIGHT + mapHeight; y += 7) context.fillRect(x, y, 1.5, 4);
    }
  }

  /** Draw a mark for each event; marks of a machine at the same position form a column. */
  function drawEvents(context, width) {
    const visible = eventsBetween(run, Math.ceil(view.from), Math.floor(view.to));
    const size = clamp(Math.sqrt((width * mapHeight) / (visible.length + 1)) / 3, 4, 13);
    const columns = new Map();
    for (const [step, kind, machine] of visible) {
      const x = xOf(step, width);
      const key = `${machine} ${Math.round(x / size)}`;
      if (!columns.has(key)) columns.set(key, { x, machine, kinds: new Set() });
      columns.get(key).kinds.add(kind);
    }
    context.font = `${size}px sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 2.5;
    context.strokeStyle = currentColour("var(--panel)");
    for (const { x, machine, kinds } of columns.values()) {
      const centre = machine ? STRIP_HEIGHT + (machine - 0.5) * rowHeight : STRIP_HEIGHT / 2;
      const spacing = Math.min(size, Math.max(rowHeight - 1, 2) / kinds.size);
      [...kinds].forEach((kind, i) => {
        const y = centre + (i - (kinds.size - 1) / 2) * spacing;
        context.fillStyle = currentColour(themeColour(DATA.kinds[kind]));
        if (size > 8) context.strokeText(glyphOf(DATA.kinds[kind]), x, y);
        context.fillText(glyphOf(DATA.kinds[kind]), x, y);
      });
    }
  }

  function drawAxes(context, width) {
    context.font = FONT;
    context.fillStyle = currentColour("var(--muted)");
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillText("machine", LEFT_MARGIN - 8, STRIP_HEIGHT / 2);
    for (const n of ticks(1, run.machines, mapHeight / 13)) {
      context.fillText(`${n}`, LEFT_MARGIN - 8, STRIP_HEIGHT + (n - 0.5) * rowHeight);
    }
    context.textBaseline = "top";
    context.textAlign = "center";
    for (const step of axisSteps(width)) {
      context.fillText(formatWhole(step), xOf(step, width), STRIP_HEIGHT + mapHeight + 7);
      context.fillRect(xOf(step, width) - 0.5, STRIP_HEIGHT + mapHeight + 1, 1, 4);
    }
  }

  /** Update the text below the map, and the value of the slider for screen readers. */
  function update() {
    const step = currentStep();
    const machine = Math.min((hoveredStep !== null && hoveredMachine) || (view.machine ?? 1), run.machines);
    lane.hidden = view.machine === null || view.machine > run.machines;
    lane.style.transform = `translateY(${STRIP_HEIGHT + (view.machine - 1) * rowHeight}px)`;
    lane.style.height = `${rowHeight}px`;
    const hint = "Point at a step, or select one, to read its values here.";
    const text = step === null ? hint : describeCell(step, machine);
    readout.textContent = text;
    if (hoveredStep !== null) return;
    element.setAttribute("aria-valuenow", step ?? firstStep);
    element.setAttribute("aria-valuetext", step === null ? "no step selected" : text);
  }

  function describeCell(step, machine) {
    const bin = countBelow(run.bin_starts, step + 1) - 1;
    if (bin < 0 || step > lastStepOf(run)) return `Step ${formatWhole(step)}: not in this run`;
    const [from, to] = stepsOfBin(run, bin);
    const cell = run.cells[(machine - 1) * run.bin_count + bin];
    const events = eventsBetween(run, from, to).filter((event) => !event[2] || event[2] === machine);
    const eventTexts = events.map(([eventStep, kind, , details]) => {
      const suffix = from === to ? "" : ` at ${formatWhole(eventStep)}`;
      return `${describeKind(DATA.kinds[kind])}${suffix}${details ? ` (${details})` : ""}`;
    });
    const isStateOfEvent = events.some(
      (event) => event[2] && DATA.kinds[event[1]].name === DATA.states[cell]?.name,
    );
    const load = `${UNITS.percent(loadOf(cell))} of its shard's rows`;
    const state = cell < FIRST_SHADE ? DATA.states[cell]?.description ?? "unknown" : load;
    const texts = [...new Set([...(isStateOfEvent ? [] : [state]), ...eventTexts])].slice(0, 4);
    const steps = from === to ? `Step ${formatWhole(from)}` : `Steps ${formatWhole(from)}–${formatWhole(to)}`;
    return `${steps} · machine ${formatMachine(run, machine)}: ${texts.join("; ")}`;
  }

  function handleKey(event) {
    const step = view.step ?? Math.ceil(view.from);
    const page = Math.max(1, Math.round((view.to - view.from) / 10));
    const actions = {
      ArrowLeft: () => selectStep(step - run.bin_width),
      ArrowRight: () => selectStep(view.step === null ? step : step + run.bin_width),
      PageDown: () => selectStep(step + page),
      PageUp: () => selectStep(step - page),
      Home: () => selectStep(firstStep),
      End: () => selectStep(lastStep),
      ArrowUp: () => selectMachine((view.machine ?? 1) - 1),
      ArrowDown: () => selectMachine((view.machine ?? 1) + 1),
      "+": () => zoom(0.5),
      "-": () => zoom(2),
      0: showAll,
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    view.run = run;
    actions[event.key]();
  }

  update();
  onChange("selection", update);
  onChange("range", draw);
  redraws.push(draw);
  new ResizeObserver(draw).observe(element);
}

/** Decode the maps, and add the legend of the colours and marks that they use. */
function addMapLegend() {
  for (const run of RUNS) {
    run.cells = decodeBase64(run.encoded_cells);
    for (const cell of run.cells) {
      if (cell > largestCell) largestCell = cell;
      if (cell < FIRST_SHADE) usedStates.add(cell);
    }
  }
  const add = (sign, text) => byId("map-legend").append(el("li", { class: "entry" }, sign, text));
  const sample = (style, colour) => el("span", { class: `sample ${style}`, colour });
  const usedKinds = new Set(RUNS.flatMap((run) => run.events.map((event) => event[1])));
  const isUsed = (name) => RUNS.some((run) => run[name].length);
  DATA.states.forEach((state, i) => {
    if (usedStates.has(i)) add(sample("layer", themeColour(state)), state.description);
  });
  add(sample("shade"), `computed none to ${UNITS.percent(loadOf(largestCell))} of its shard's rows`);
  DATA.kinds.forEach((kind, i) => usedKinds.has(i) && add(eventMark(kind), describeKind(kind)));
  if (isUsed("checkpoints")) add(sample("tick", "var(--muted)"), "checkpoint");
  if (isUsed("resumptions")) add(sample("resumed", "var(--text)"), "resumed");
}
