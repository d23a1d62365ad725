// Availability over time: machines by steps, load as shade, states in colours, events as marks.

const STRIP = 18;

class MachineMap {
  constructor(parent, run, index) {
    this.run = run;
    this.index = index;
    this.cells = run.cells;
    this.machine = 1;
    this.rowHeight = run.machines <= 24 ? 22 : Math.max(1, 500 / run.machines);
    this.height = STRIP + Math.round(this.rowHeight * run.machines) + AXIS;
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.readout = el("p", { class: "readout" });
    const name = RUNS.length > 1 ? ` of run ${LETTERS[index]}` : "";
    this.element = el(
      "div",
      {
        class: "map",
        role: "slider",
        tabindex: "0",
        "aria-label": `Machines by steps${name}`,
        "aria-describedby": "map-keys",
        "aria-valuemin": view.first,
        "aria-valuemax": view.last,
        onkeydown: (event) => this.key(event),
        onpointermove: (event) => this.point(event),
        onpointerup: (event) => this.point(event, true),
      },
      this.canvas,
    );
    if (RUNS.length > 1) parent.append(el("h3", { text: `Run ${LETTERS[index]}: ${run.name}` }));
    parent.append(this.element, this.readout);
    const overlay = frame(this.element, () => this.height - AXIS);
    new ResizeObserver(() => (this.draw(), overlay())).observe(this.element);
    when("window", () => this.draw());
    when("step", () => this.tell());
    when("hover", () => this.tell(false));
    drawn(() => {
      this.tiles = paintCells(run, this.cells);
      this.draw();
    });
    this.tell(false);
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width) return;
    const { run, rowHeight } = this;
    const context = sharp(this.canvas, width, this.height);
    context.clearRect(0, 0, width, this.height);
    const inner = width - LEFT - RIGHT;
    const rows = rowHeight * run.machines;
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, inner, STRIP + rows);
    context.clip();
    this.drawCells(context, width, rows);
    this.drawMoments(context, width, rows);
    this.drawEvents(context, width);
    context.restore();
    this.drawAxes(context, width, rows);
  }

  drawCells(context, width, rows) {
    const { run } = this;
    const start = run.first - 0.5;
    const perStep = (width - LEFT - RIGHT) / (view.to - view.from);
    const mixed = perStep * run.bin < 1; // several bins on one pixel
    context.imageSmoothingEnabled = this.rowHeight < 1;
    for (const { begin, width: bins, canvas } of this.tiles) {
      const from = clamp(Math.floor((view.from - start) / run.bin) - begin, 0, bins);
      const to = clamp(Math.ceil((view.to - start) / run.bin) - begin, 0, bins);
      if (to <= from) continue;
      const x = xOf(start + (begin + from) * run.bin, width);
      const wide = (to - from) * run.bin * perStep;
      const [picture, left, across] = mixed ? mix(canvas, from, to, wide) : [canvas, from, to - from];
      context.drawImage(picture, left, 0, across, run.map.rows, x, STRIP, wide, rows);
    }
    const end = xOf(lastOf(run) + 0.5, width); // the last bin can be shorter than the others
    context.clearRect(end, STRIP, Math.max(width - end, 0), rows);
    if (this.rowHeight >= 6) {
      context.fillStyle = colour("panel");
      for (let n = 1; n < run.machines; n++) {
        context.fillRect(LEFT, STRIP + n * this.rowHeight - 1, width, 2);
      }
    }
  }

  /** Checkpoints and the places where a run was resumed. */
  drawMoments(context, width, rows) {
    context.fillStyle = colour("muted");
    for (const step of this.run.checkpoints) context.fillRect(xOf(step, width) - 0.5, STRIP - 6, 1, 6);
    context.strokeStyle = colour("text");
    context.setLineDash([4, 3]);
    context.lineWidth = 1.5;
    for (const step of this.run.resumes) {
      const x = xOf(step - 0.5, width);
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, STRIP + rows);
      context.stroke();
    }
    context.setLineDash([]);
  }

  drawEvents(context, width) {
    const shown = eventsBetween(this.run, Math.ceil(view.from), Math.floor(view.to)).filter(([, index]) => DATA.kinds[index]);
    const room = Math.sqrt(((width - LEFT - RIGHT) * this.height) / (shown.length + 1));
    const size = clamp(Math.min(room / 3, Math.max(this.rowHeight * 0.6, 8)), 4, 11);
    const ground = size > 6 ? colour("panel") : "transparent";
    const seen = new Set();
    const beside = new Map(); // marks of one machine in one step stand beside each other
    for (const [step, index, machine] of shown) {
      const place = `${step} ${machine}`;
      const before = beside.get(place) ?? 0;
      beside.set(place, before + 1);
      const x = xOf(step, width) + before * (size + 2);
      const y = machine ? STRIP + (machine - 0.5) * this.rowHeight : STRIP / 2;
      const spot = `${index} ${Math.round(x / 3)} ${Math.round(y / 3)}`;
      if (seen.has(spot)) continue; // a thousand marks on one spot look like one
      seen.add(spot);
      drawMark(context, DATA.kinds[index].mark, x, y, size, given(DATA.kinds[index]), ground);
    }
  }

  drawAxes(context, width, rows) {
    context.fillStyle = colour("muted");
    context.font = FONT;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillText("machine", LEFT - 8, STRIP / 2);
    const every = Math.ceil(13 / this.rowHeight);
    for (const n of ticks(1, this.run.machines, this.run.machines / every)) {
      const y = STRIP + (n - 0.5) * this.rowHeight;
      context.fillStyle = n === this.machine ? colour("text") : colour("muted");
      context.fillText(`${n}`, LEFT - 8, y);
    }
    context.fillStyle = colour("muted");
    context.textBaseline = "top";
    const inner = width - LEFT - RIGHT;
    for (const step of ticks(view.from, view.to, inner / 90)) {
      const x = xOf(step, width);
      context.textAlign = x > width - 30 ? "right" : "center";
      context.fillText(whole(step), Math.min(x, width), STRIP + rows + 7);
      context.fillRect(x - 0.5, STRIP + rows + 1, 1, 4);
    }
  }

  point(event, pick = false) {
    const y = event.clientY - this.element.getBoundingClientRect().top - STRIP;
    const machine = Math.floor(y / this.rowHeight) + 1;
    if (machine < 1 || machine > this.run.machines) return;
    if (machine !== this.machine) changed("hover");
    this.look(machine);
    if (pick) setMachine(machine);
  }

  /** Show the values of this machine. */
  look(machine) {
    const its = clamp(machine, 1, this.run.machines);
    if (its === this.machine) return;
    this.machine = its;
    this.draw();
  }

  /** What is at the step that is shown, in words beneath the map and for whoever listens. */
  tell(aloud = true) {
    const step = shownStep();
    if (hovered === null) this.look(view.machine);
    this.readout.classList.toggle("empty", step === null);
    if (step === null) {
      this.readout.textContent = "Point at a step, or pick one with the arrow keys, to read its values here.";
      this.element.setAttribute("aria-valuenow", view.first);
      this.element.setAttribute("aria-valuetext", "no step picked");
      return;
    }
    const words = this.words(step);
    this.readout.textContent = words;
    if (hovered !== null) return;
    this.element.setAttribute("aria-valuenow", step);
    this.element.setAttribute("aria-valuetext", words);
    if (aloud && document.activeElement !== this.element) say(words);
  }

  words(step) {
    const { run } = this;
    const bin = binOf(run, step);
    if (bin < 0) return `Step ${whole(step)}: not in this run`;
    const [first, last] = stepsOf(run, bin);
    const value = this.cells[(this.machine - 1) * run.bins + bin];
    const said = [`${machineName(run, this.machine)}: ${cellWords(run, value)}`];
    let shown = 0;
    for (const [at, index, machine, text] of eventsBetween(run, first, last)) {
      if (machine && machine !== this.machine) continue;
      if (++shown > 3) break;
      said.push(`${wordsOf(DATA.kinds[index])}${first === last ? "" : ` at ${whole(at)}`}${text ? ` (${text})` : ""}`);
    }
    let computing = 0;
    for (let n = 0; n < run.machines; n++) computing += this.cells[n * run.bins + bin] >= FIRST_SHARE;
    return `${stepWords(run, bin)} · ${computing} of ${run.machines} computed · ${said.join("; ")}`;
  }

  key(event) {
    const { run } = this;
    const from = view.step ?? Math.ceil(view.from);
    const page = Math.max(1, Math.round((view.to - view.from) / 10));
    const moves = {
      ArrowLeft: () => setStep(from - run.bin),
      ArrowRight: () => setStep(view.step === null ? from : from + run.bin),
      PageDown: () => setStep(from + page),
      PageUp: () => setStep(from - page),
      Home: () => setStep(view.first),
      End: () => setStep(view.last),
      ArrowUp: () => setMachine(clamp(this.machine - 1, 1, run.machines)),
      ArrowDown: () => setMachine(clamp(this.machine + 1, 1, run.machines)),
      "+": () => zoom(0.5),
      "=": () => zoom(0.5),
      "-": () => zoom(2),
      0: showAll,
      Escape: showAll,
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
  }
}

function setMachine(machine) {
  view.machine = machine;
  changed("step");
}
