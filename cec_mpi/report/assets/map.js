// Availability over time: machines by steps, load as shade, states in colours, events as marks.

const STRIP = 18;
const SMALL = 24; // machines that are shown all
const TALL = 500;
const FEWEST = 12; // machines that a zoomed map shows at the least

class MachineMap {
  constructor(parent, run, index) {
    this.run = run;
    this.index = index;
    this.cells = run.cells;
    this.machine = 1;
    this.low = 1;
    this.count = run.machines;
    this.height = STRIP + (run.machines <= SMALL ? 22 * run.machines : Math.max(TALL, run.machines)) + AXIS;
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
    if (run.machines > SMALL) parent.append(this.bar());
    parent.append(this.element, this.readout);
    this.element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    const overlay = frame(this.element, () => this.height - AXIS);
    new ResizeObserver(() => (this.draw(), overlay())).observe(this.element);
    when("window", () => this.draw());
    when("step", () => this.tell());
    when("hover", () => this.tell(false));
    drawn(() => {
      this.tiles = paintCells(run, this.cells);
      this.draw();
    });
    this.show(1, run.machines);
    this.tell(false);
  }

  get rowHeight() {
    return (this.height - STRIP - AXIS) / this.count;
  }

  /** Where the row of a machine begins. */
  top(machine) {
    return STRIP + (machine - this.low) * this.rowHeight;
  }

  /** Buttons for which machines are shown. */
  bar() {
    this.shown = el("span", { class: "window" });
    const button = (text, label, onclick) => el("button", { type: "button", text, "aria-label": label, onclick });
    this.buttons = {
      up: button("↑", "Machines with lower numbers", () => this.show(this.low - Math.ceil(this.count / 2), this.count)),
      down: button("↓", "Machines with higher numbers", () => this.show(this.low + Math.ceil(this.count / 2), this.count)),
      fewer: button("+", "Fewer machines, larger", () => this.zoom(0.5)),
      more: button("−", "More machines, smaller", () => this.zoom(2)),
      all: button("All machines", null, () => this.show(1, this.run.machines)),
    };
    return el("div", { class: "toolbar machines controls", role: "toolbar", "aria-label": "Machines shown" }, this.shown, el("span", { class: "buttons" }, ...Object.values(this.buttons)));
  }

  /** Show so many machines from this one on. */
  show(low, count) {
    const { run, buttons } = this;
    if (run.machines <= SMALL) return;
    this.count = clamp(Math.round(count), Math.min(FEWEST, run.machines), run.machines);
    this.low = clamp(Math.round(low), 1, run.machines - this.count + 1);
    const last = this.low + this.count - 1;
    this.shown.textContent = `Machines ${whole(this.low)}–${whole(last)} of ${whole(run.machines)}`;
    buttons.up.disabled = this.low === 1;
    buttons.down.disabled = last === run.machines;
    buttons.fewer.disabled = this.count <= FEWEST;
    buttons.more.disabled = buttons.all.disabled = this.count === run.machines;
    this.draw();
  }

  zoom(factor, centre = this.machine) {
    const at = clamp(centre, this.low, this.low + this.count - 1);
    const part = (at - this.low) / this.count;
    const count = clamp(Math.round(this.count * factor), FEWEST, this.run.machines);
    this.show(at - part * count, count);
    say(this.shown?.textContent ?? "");
  }

  wheel(event) {
    if (!event.altKey || this.run.machines <= SMALL) return;
    event.preventDefault();
    this.zoom(2 ** clamp((event.deltaY || event.deltaX) / 200, -1, 1), this.machineAt(event));
  }

  machineAt(event) {
    const y = event.clientY - this.element.getBoundingClientRect().top - STRIP;
    return Math.floor(y / this.rowHeight) + this.low;
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width) return;
    const { rowHeight } = this;
    const context = sharp(this.canvas, width, this.height);
    context.clearRect(0, 0, width, this.height);
    const inner = width - LEFT - RIGHT;
    const rows = rowHeight * this.count;
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
    for (const tile of this.tiles) {
      const { begin, width: bins, canvas } = tile;
      const from = clamp(Math.floor((view.from - start) / run.bin) - begin, 0, bins);
      const to = clamp(Math.ceil((view.to - start) / run.bin) - begin, 0, bins);
      if (to <= from) continue;
      const x = xOf(start + (begin + from) * run.bin, width);
      const wide = (to - from) * run.bin * perStep;
      const [picture, left, across] = mixed ? mix(tile, from, to, wide) : [canvas, from, to - from];
      context.drawImage(picture, left, this.low - 1, across, this.count, x, STRIP, wide, rows);
    }
    const end = xOf(lastOf(run) + 0.5, width); // the last bin can be shorter than the others
    context.clearRect(end, STRIP, Math.max(width - end, 0), rows);
    if (this.rowHeight >= 6) {
      context.fillStyle = colour("panel");
      for (let n = 1; n < this.count; n++) {
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
    const last = this.low + this.count - 1;
    const isShown = ([, index, machine]) => DATA.kinds[index] && (!machine || (machine >= this.low && machine <= last));
    const shown = eventsBetween(this.run, Math.ceil(view.from), Math.floor(view.to)).filter(isShown);
    const room = Math.sqrt(((width - LEFT - RIGHT) * this.height) / (shown.length + 1));
    const size = clamp(Math.min(room / 3, Math.max(this.rowHeight * 0.6, 8)), 4, 11);
    const ground = size > 6 ? colour("panel") : "transparent";
    // Marks of one machine on one spot stand below each other, since none is to look as if it came
    // later; a thousand of one kind look like one.
    const spots = new Map();
    for (const [step, index, machine] of shown) {
      const x = xOf(step, width);
      const place = `${machine} ${Math.round(x / size)}`;
      const spot = spots.get(place) ?? { x, machine, kinds: new Set() };
      spots.set(place, spot);
      spot.kinds.add(index);
    }
    for (const { x, machine, kinds } of spots.values()) {
      const middle = machine ? this.top(machine) + this.rowHeight / 2 : STRIP / 2;
      const apart = Math.min(size + 1, Math.max(this.rowHeight - 1, 2) / kinds.size);
      [...kinds].forEach((index, i) => {
        const kind = DATA.kinds[index];
        drawMark(context, kind.mark, x, middle + (i - (kinds.size - 1) / 2) * apart, size, given(kind), ground);
      });
    }
  }

  drawAxes(context, width, rows) {
    context.fillStyle = colour("muted");
    context.font = FONT;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillText("machine", LEFT - 8, STRIP / 2);
    const every = Math.ceil(13 / this.rowHeight);
    for (const n of ticks(this.low, this.low + this.count - 1, this.count / every)) {
      const y = this.top(n) + this.rowHeight / 2;
      context.fillStyle = n === this.machine ? colour("text") : colour("muted");
      context.fillText(`${n}`, LEFT - 8, y);
    }
    context.fillStyle = colour("muted");
    context.textBaseline = "top";
    context.textAlign = "center";
    for (const step of axisSteps(width)) {
      const x = xOf(step, width);
      context.fillText(whole(step), x, STRIP + rows + 7);
      context.fillRect(x - 0.5, STRIP + rows + 1, 1, 4);
    }
  }

  point(event, pick = false) {
    const machine = this.machineAt(event);
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
    if (its < this.low || its >= this.low + this.count) this.show(its - this.count / 2, this.count);
    else this.draw();
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
    const its = eventsBetween(run, first, last).filter(([, , machine]) => !machine || machine === this.machine);
    const events = new Set(its.map(([at, index, , text]) => `${wordsOf(DATA.kinds[index])}${first === last ? "" : ` at ${whole(at)}`}${text ? ` (${text})` : ""}`));
    // A cell whose state is that of an event says nothing more than the event.
    const isSaid = its.some(([, index, machine]) => machine && DATA.kinds[index]?.kind === DATA.states[value]?.state);
    const said = [...(isSaid ? [] : [cellWords(run, value)]), ...events].slice(0, 4);
    let computing = 0;
    for (let n = 0; n < run.machines; n++) computing += this.cells[n * run.bins + bin] >= FIRST_SHARE;
    return `${stepWords(run, bin)} · ${computing} of ${run.machines} computed · ${machineName(run, this.machine)}: ${said.join("; ")}`;
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
      "[": () => this.zoom(0.5),
      "]": () => this.zoom(2),
      0: showAll,
      Escape: showAll,
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
  }
}
