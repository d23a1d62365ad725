// A chart along the steps: lines with what they are between, or layers on one another (uPlot).

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const charts = [];
const GROUPS = 240;
const ROOM = 1.08; // of the axis over the largest value

/**
 * Add a chart.
 *
 * A line has `label`, `paint` (gives its colour), `x`, `y`, and may have `dash`, `low` and `high`
 * (the range that a bin's values cover), `step` (a line of steps), `off` (hidden at first), `beside`
 * (the axis is that of the others) and `machine`, which its entry of the legend picks.
 */
class Chart {
  constructor(parent, { title, note, unit, lines, log = false, layers = false, moments = false, group = null, standsOut = null, height = 180 }) {
    Object.assign(this, { unit, lines, log, layers, moments, group, standsOut, height });
    this.shown = lines.map((line) => !line.off);
    this.plot = el("div", { class: "plot", role: "img", "aria-label": `${title}. ${this.summary()}` });
    this.legend = el("ul", { class: "legend" });
    this.element = el(
      "figure",
      { class: "chart" },
      el("figcaption", {}, el("h3", { text: title }), note ? el("p", { class: "note", text: note }) : null),
      this.legend,
      this.plot,
    );
    parent.append(this.element);
    this.fillLegend();
    this.make();
    this.overlay = frame(this.plot, () => this.height - AXIS);
    new ResizeObserver(() => this.resize()).observe(this.plot);
    redraws.push(() => this.uplot.redraw(false, true));
    when("window", () => {
      if (group) this.uplot.setData(this.series().data, false);
      this.uplot.setScale("x", { min: view.from, max: view.to });
    });
    when("step", () => this.tell());
    when("hover", () => this.tell());
    this.tell();
    charts.push(this);
  }

  summary() {
    return this.lines
      .map((line) => {
        const values = line.y.filter((y) => y !== null && y !== undefined).sort((a, b) => a - b);
        if (!values.length) return `${line.label}: no values`;
        const middle = this.unit(values[values.length >> 1]);
        return `${line.label}: median ${middle}, largest ${this.unit(values.at(-1))}`;
      })
      .join("; ");
  }

  fillLegend() {
    this.values = this.lines.map((line, i) => {
      const value = el("span", { class: "value" });
      const sample = el("span", { class: `sample ${this.layers ? "layer" : ""}`, "aria-hidden": "true" });
      drawn(() => {
        const paint = line.paint();
        if (this.layers) sample.style.background = paint;
        else sample.style.borderTop = `2px ${line.dash ? (line.dash[0] < 3 ? "dotted" : "dashed") : "solid"} ${paint}`;
      });
      if (this.lines.length === 1 && RUNS.length === 1) { // the title of its chart names it
        this.element.querySelector("figcaption").append(value);
        return value;
      }
      const words = [sample, el("span", { class: "label", text: line.label }), value];
      const item = line.machine
        ? el("button", { type: "button", class: "entry", onclick: () => setMachine(line.machine), onpointerenter: () => pointAt(line.machine), onpointerleave: () => pointAt(null), onfocus: () => pointAt(line.machine), onblur: () => pointAt(null) }, ...words)
        : this.layers || this.lines.length === 1
        ? el("span", { class: "entry" }, ...words)
        : el("button", { type: "button", class: "entry", "aria-pressed": `${this.shown[i]}`, onclick: () => this.toggle(i, item) }, ...words);
      this.legend.append(el("li", {}, item));
      return value;
    });
  }

  /** Put another line in the place of one. */
  replace(i, { label, y }) {
    Object.assign(this.lines[i], { label, y });
    this.legend.querySelectorAll(".label")[i].textContent = label;
    this.uplot.setData(this.series().data, false);
    this.uplot.redraw(true);
    this.tell();
  }

  /** What else is drawn over the lines. */
  drawNames() {}

  toggle(i, item) {
    this.shown[i] = !this.shown[i];
    item.setAttribute("aria-pressed", `${this.shown[i]}`);
    for (const series of this.places[i]) this.uplot.setSeries(series, { show: this.shown[i] });
  }

  /** Tables of x and ys, and what uPlot is to make of them. */
  series() {
    const tables = [];
    const series = [{}];
    const bands = [];
    this.places = [];
    this.picks = null;
    const points = (line) => ({ show: line.x.length <= 40, size: 5, fill: () => line.paint() });
    const lines = this.lines.map((line) => this.grouped(line));
    let under = lines[0] && new Float64Array(lines[0].x.length);
    const layers = [];
    lines.forEach((line, i) => {
      if (this.layers) {
        under = under.map((sum, at) => sum + (line.y[at] ?? 0));
        layers.push({ line, y: Array.from(under) });
        return;
      }
      const columns = [line.x];
      const add = (y, options) => {
        columns.push(y);
        series.push({ show: this.shown[i], spanGaps: !!line.span, ...options });
        this.places[i].push(series.length - 1);
      };
      this.places[i] = [];
      const clear = { stroke: "transparent", width: 1, points: { show: false } };
      if (line.low) {
        add(line.high, clear);
        add(line.low, clear);
        bands.push({ series: [series.length - 2, series.length - 1], fill: () => colour(line.range) });
      }
      add(line.y, { stroke: line.paint, width: line.width ?? 1.5, dash: line.dash, points: points(line), auto: !line.beside });
      tables.push(columns);
    });
    for (const { line, y } of layers.reverse()) {
      const areFew = line.x.length <= 40;
      series.push({
        stroke: areFew ? () => colour("panel") : line.paint, // of many, no seam shows between two
        width: areFew ? 0.5 : 1,
        fill: line.paint,
        points: { show: false },
        paths: uPlot.paths.bars({ size: areFew ? [0.9, 60] : [1, 60] }),
      });
      tables.push([line.x, y]);
    }
    return { data: tables.length ? uPlot.join(tables) : [[]], series, bands };
  }

  /** A line with no more values in the window than can be told apart. */
  grouped(line) {
    const { x } = line;
    const from = Math.max(placeOf(x, view.from) - 1, 0);
    const to = Math.min(placeOf(x, view.to) + 1, x.length);
    const size = Math.ceil((to - from) / GROUPS);
    if (!this.group || size < 2) return line;
    const count = Math.ceil((to - from) / size);
    const starts = Array.from({ length: count }, (_, i) => from + Math.floor((i * (to - from)) / count));
    const stops = [...starts.slice(1), to];
    if (this.group === "longest") {
      this.picks ??= starts.map((start, i) => this.longest(start, stops[i]));
      return { ...line, x: starts.map((start, i) => mean(x.slice(start, stops[i]))), y: this.picks.map((at) => line.y[at]) };
    }
    const each = (values, one) => values && starts.map((start, i) => one(values.slice(start, stops[i])));
    return {
      ...line,
      x: each(x, mean),
      y: each(line.y, this.group),
      low: each(line.low, (values) => ordered(values)[0] ?? null),
      high: each(line.high, (values) => ordered(values).at(-1) ?? null),
    };
  }

  /** Where, from one place to before another, all lines add up to the most. */
  longest(from, to) {
    let [found, most] = [from, -1];
    for (let at = from; at < to; at++) {
      const sum = this.lines.reduce((all, line) => all + (line.y[at] ?? 0), 0);
      if (sum > most) [found, most] = [at, sum];
    }
    return found;
  }

  make() {
    const { data, series, bands } = this.series();
    const muted = () => colour("muted");
    const grid = { stroke: () => colour("rule"), width: 1 };
    const axis = { stroke: muted, font: FONT, grid, ticks: { show: false } };
    this.uplot = new uPlot(
      {
        width: this.plot.clientWidth || 600,
        height: this.height,
        padding: [8, RIGHT, 0, 0],
        cursor: { show: false },
        legend: { show: false },
        select: { show: false },
        scales: {
          x: { time: false, auto: false, min: view.from, max: view.to },
          y: this.log ? { distr: 3 } : { range: (uplot, low, high) => [Math.min(low ?? 0, 0), ROOM * (high > 0 ? high : this.largest(uplot)) || 1] },
        },
        axes: [
          { ...axis, size: AXIS, gap: 6, splits: () => axisSteps(this.plot.clientWidth || 600), values: (_, steps) => steps.map(whole) },
          { ...axis, size: LEFT, gap: 6, space: 34, values: (_, ys) => ys.map((y) => (y === null ? "" : this.unit(y))), ...this.decades(grid) },
        ],
        series,
        bands,
        hooks: { draw: [(uplot) => this.drawMoments(uplot), (uplot) => this.drawNames(uplot)] },
      },
      data,
      this.plot,
    );
  }

  /** Of the lines beside the others, where no other is shown. */
  largest(uplot) {
    const inside = ([x]) => x >= view.from && x <= view.to;
    const shown = this.lines.flatMap((line, i) => (line.beside && this.shown[i] ? this.places[i] : []));
    const values = shown.flatMap((series) => uplot.data[series].map((y, at) => [uplot.data[0][at], y]).filter(inside).map(([, y]) => y ?? 0));
    return values.reduce((all, y) => Math.max(all, y), 0);
  }

  /** Where a run was resumed, and, where it matters, its checkpoints. */
  drawMoments({ ctx, bbox, pxRatio, valToPos }) {
    const inside = (step) => step >= view.from && step <= view.to;
    ctx.save();
    ctx.lineWidth = pxRatio;
    const line = (step, from, to) => {
      const x = valToPos(step, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, from);
      ctx.lineTo(x, to);
      ctx.stroke();
    };
    const foot = bbox.top + bbox.height;
    for (const run of RUNS) {
      ctx.strokeStyle = colour("muted");
      if (this.moments) for (const step of run.checkpoints.filter(inside)) line(step, foot - 7 * pxRatio, foot);
      ctx.setLineDash([4 * pxRatio, 3 * pxRatio]);
      for (const step of run.resumes.filter(inside)) line(step - 0.5, bbox.top, foot);
      ctx.setLineDash([]);
    }
    ctx.restore();
  }

  /** On a logarithmic axis: which of its many values get a line and a number. */
  decades(grid) {
    if (!this.log) return {};
    const filter = (uplot, values) => {
      const { min, max } = uplot.scales.y;
      const several = Math.log10(max / min);
      const every = Math.ceil((several * 22) / this.height);
      return values.map((y) => {
        const power = Math.log10(y);
        const tens = Math.round(power);
        const round = Math.abs(power - tens) < 1e-6;
        const wanted = round ? tens % every === 0 : several <= 2 && /^[25]/.test(y.toExponential(0));
        return wanted ? y : null;
      });
    };
    return { filter, grid: { ...grid, filter } };
  }

  resize() {
    const width = this.plot.clientWidth;
    if (!width) return;
    this.uplot.setSize({ width, height: this.height });
    this.overlay();
  }

  tell() {
    const step = shownStep();
    this.lines.forEach((line, i) => {
      this.values[i].textContent = step === null ? "" : this.unit(nearest(line, step));
    });
  }
}

const known = (values) => values.filter((y) => y !== null && y !== undefined);
const ordered = (values) => known(values).sort((a, b) => a - b);
const mean = (values) => (known(values).length ? known(values).reduce((sum, y) => sum + y, 0) / known(values).length : null);
const median = (values) => ordered(values)[known(values).length >> 1] ?? null;

/** The value of a line at a step, or null where it has none thereabouts. */
function nearest(line, step) {
  const { x, y } = line;
  if (!x.length) return null;
  let low = Math.min(placeOf(x, step), x.length - 1);
  if (low > 0 && step - x[low - 1] <= x[low] - step) low -= 1;
  const apart = line.reach ?? 1;
  return Math.abs(x[low] - step) <= apart ? y[low] : null;
}
