// The assignment of a step as the paper draws it: machines by the rows of their shards.

const MACHINE_LEFT = LEFT;
const LOADS = 76;
const THIN = 6;
const COLUMNS = ["Rows", "Of its shard", "Rows/s", "New rows"];

const rowHeightOf = (run) => clamp(480 / run.machines, 1.5, 26);

class Assignments {
  constructor(parent) {
    this.canvas = el("canvas", { id: "drawing", role: "img" });
    this.range = el("input", { type: "range", id: "assignment", min: 0, value: 0, step: 1, oninput: () => this.slide() });
    this.words = el("p", { class: "readout", id: "assignment-words" });
    const step = (way, text, label) =>
      el("button", { type: "button", text, "aria-label": label, onclick: () => this.go(+this.range.value + way) });
    const slider = el("div", { class: "slider controls" }, el("label", { for: "assignment", text: "Step of the assignment" }), step(-1, "‹", "Earlier assignment"), this.range, step(1, "›", "Later assignment"));
    if (RUNS.length > 1) slider.prepend(this.choice());
    this.range.setAttribute("aria-describedby", "assignment-words");
    this.plot = el("div", { class: "drawing" }, this.canvas);
    parent.append(slider, this.words, this.plot, this.key(), this.tables());
    new ResizeObserver(() => this.draw()).observe(this.plot);
    when("step", () => this.follow());
    redraws.push(() => this.show());
    this.setRun(view.run);
  }

  get list() {
    return this.run.assignments;
  }

  choice() {
    this.select = el("select", { id: "assignment-run", onchange: () => this.setRun(+this.select.value) }, ...RUNS.map((run, i) => el("option", { value: i, text: `${LETTERS[i]}: ${run.name}` })));
    return el("label", {}, "Run ", this.select);
  }

  setRun(index) {
    view.run = index;
    this.run = RUNS[index];
    if (this.select) this.select.value = index;
    this.range.max = Math.max(this.list.length - 1, 0);
    this.range.disabled = this.list.length < 2;
    this.range.value = this.holding(view.step ?? view.first);
    this.show();
  }

  /** Which assignment held at a step, or the nearest that is kept. */
  holding(step) {
    const at = this.list.findLastIndex((each) => each.step <= step);
    if (at < 0) return 0;
    const next = this.list[at + 1];
    const apart = step - this.list[at].until;
    return next && apart > 0 && next.step - step < apart ? at + 1 : at;
  }

  follow() {
    if (view.run !== RUNS.indexOf(this.run)) return void this.setRun(view.run);
    if (view.step === null || !this.list.length) return;
    this.range.value = this.holding(view.step);
    this.show();
  }

  go(index) {
    this.range.value = index;
    this.slide();
  }

  slide() {
    setStep(this.list[+this.range.value].step);
    this.show();
  }

  show() {
    this.current = this.list[+this.range.value];
    if (!this.current) return;
    const { step, until, available, blocks } = this.current;
    const held = until > step ? ` (held until step ${whole(until)})` : "";
    const picked = view.step;
    const elsewhere = picked !== null && (picked < step || picked > until) ? ` Step ${whole(picked)} has an assignment that this page does not hold; this is the nearest.` : "";
    const left = this.run.left_out && +this.range.value === 0 && !elsewhere ? ` ${plural(this.run.left_out, "further assignment")} not held here.` : "";
    const text = `Step ${whole(step)}${held}: ${available.length} of ${plural(this.run.machines, "machine")} available, ${plural(blocks.length, "block")} of ${whole(this.run.rows)} rows.`;
    this.words.textContent = text + elsewhere + left;
    this.range.setAttribute("aria-valuetext", text);
    this.canvas.setAttribute("aria-label", `Assignment. ${text} The table beneath has its blocks.`);
    this.draw();
    this.fill();
  }

  /** Why a machine is not available, as far as that is known. */
  away(machine) {
    return this.current.away?.[machine] ?? "preempted";
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width || !this.current) return;
    const { run } = this;
    const rowHeight = rowHeightOf(run);
    const height = Math.round(run.machines * rowHeight) + AXIS + 2;
    const context = sharp(this.canvas, width, height);
    context.clearRect(0, 0, width, height);
    const inner = width - MACHINE_LEFT - LOADS;
    const x = (row) => MACHINE_LEFT + (row / run.rows) * inner;
    const gap = rowHeight >= 8 ? 2 : 0;
    const box = { context, x, rowHeight, gap, top: (machine) => (machine - 1) * rowHeight };
    this.drawGround(box, inner);
    this.current.blocks.forEach((block, i) => this.drawBlock(box, block, i));
    this.drawMoved(box);
    this.drawText(box, width, inner);
  }

  drawGround({ context, rowHeight, gap, top }, inner) {
    const available = new Set(this.current.available);
    for (let n = 1; n <= this.run.machines; n++) {
      context.fillStyle = colour("sunken");
      context.fillRect(MACHINE_LEFT, top(n), inner, rowHeight - gap);
      if (available.has(n)) continue;
      context.save();
      context.beginPath();
      context.rect(MACHINE_LEFT, top(n), inner, rowHeight - gap);
      context.clip();
      context.strokeStyle = colour("hatch");
      context.lineWidth = 1.25;
      context.beginPath();
      for (let at = MACHINE_LEFT - rowHeight; at < MACHINE_LEFT + inner; at += 7) {
        context.moveTo(at, top(n) + rowHeight);
        context.lineTo(at + rowHeight, top(n));
      }
      context.stroke();
      context.restore();
    }
  }

  drawBlock({ context, x, rowHeight, gap, top }, [start, stop, machines], i) {
    const wide = x(stop) - x(start);
    context.font = FONT;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const machine of machines) {
      context.fillStyle = colour(`block-${i % SERIES}`);
      context.fillRect(x(start), top(machine), Math.max(wide - (wide > 4 ? 1 : 0), 0.5), rowHeight - gap);
      if (rowHeight < 14 || wide < 18) continue;
      context.fillStyle = colour("on-block");
      context.fillText(`${i + 1}`, x(start) + wide / 2, top(machine) + (rowHeight - gap) / 2);
    }
  }

  /** Rows that a machine did not compute in the step before: a bar along its foot. */
  drawMoved({ context, x, rowHeight, gap, top }) {
    if (rowHeight < THIN) return; // it would hide the blocks; the table has the numbers
    const thick = clamp(rowHeight / 6, 1, 4);
    context.fillStyle = colour("text");
    for (const [machine, pieces] of Object.entries(this.current.moved ?? {})) {
      for (const [start, stop] of pieces) {
        context.fillRect(x(start), top(+machine) + rowHeight - gap - thick, Math.max(x(stop) - x(start) - 1, 1), thick);
      }
    }
  }

  drawText({ context, x, rowHeight, gap, top }, width, inner) {
    const every = Math.ceil(14 / rowHeight);
    context.font = FONT;
    context.textBaseline = "middle";
    const available = new Set(this.current.available);
    for (const n of ticks(1, this.run.machines, this.run.machines / every)) {
      const y = top(n) + (rowHeight - gap) / 2;
      context.fillStyle = colour("text");
      context.textAlign = "right";
      context.fillText(`${n}`, MACHINE_LEFT - 8, y);
      context.fillStyle = colour("muted");
      if (rowHeight >= 14) context.fillText(available.has(n) ? whole(this.current.loads[n - 1]) : this.away(n), width - 2, y);
    }
    context.fillStyle = colour("muted");
    context.textBaseline = "top";
    for (const row of ticks(0, this.run.rows, inner / 80)) {
      context.textAlign = row === 0 ? "left" : x(row) > x(this.run.rows) - 20 ? "right" : "center";
      context.fillText(whole(row), x(row), top(this.run.machines + 1) + 6);
    }
    context.textAlign = "right";
    context.fillText("machine", MACHINE_LEFT - 8, top(this.run.machines + 1) + 6);
    context.fillText("rows", width - 2, top(this.run.machines + 1) + 6);
  }

  key() {
    const item = (name, text) => el("li", {}, el("span", { class: "entry" }, el("span", { class: `sample ${name}`, "aria-hidden": "true" }), text));
    return el("ul", { class: "legend" }, item("layer a-block", "a block: rows that the same machines compute"), item("layer hatched", "not available"), RUNS.some((run) => rowHeightOf(run) >= THIN) ? item("layer moved", "rows new to the machine since the step before") : "");
  }

  tables() {
    const blocks = table({ caption: "Blocks of Algorithm 1", kind: "numbers blocks", names: ["Block", "Rows", "Count", "Machines"], rows: [] });
    const machines = table({ caption: "Machines", names: ["Machine", ...COLUMNS], rows: [] });
    [this.body, this.machines] = [blocks.body, machines.body];
    return el("div", { class: "tables" }, blocks.box, machines.box);
  }

  fill() {
    const { blocks, loads, moved, speeds, available } = this.current;
    this.body.replaceChildren(
      ...blocks.map(([start, stop, machines], i) => {
        const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
        swatch.style.background = `var(--block-${i % SERIES})`;
        return el("tr", {}, el("th", { scope: "row" }, swatch, `${i + 1}`), cell("rows", `${whole(start)}–${whole(stop - 1)}`), cell("count", whole(stop - start)), cell("machines", machines.join(" "), "text"));
      }),
    );
    const up = new Set(available);
    this.machines.replaceChildren(
      ...loads.map((load, i) => {
        const fresh = (moved?.[i + 1] ?? []).reduce((sum, [start, stop]) => sum + stop - start, 0);
        const name = this.run.names[i] ? `${i + 1} · ${this.run.names[i]}` : `${i + 1}`;
        const cells = up.has(i + 1)
          ? [whole(load), UNITS.percent(load / this.run.rows), short(speeds?.[i] ?? null), whole(fresh)]
          : [this.away(i + 1), "–", "–", "–"];
        return machineRow(i + 1, name, cells.map((text, k) => cell(COLUMNS[k], text)));
      }),
    );
  }
}
