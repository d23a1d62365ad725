// A chart with steps on the horizontal axis: lines with ranges, or stacked bars (with uPlot).

const HEADROOM = 1.08; // upper end of the axis, relative to the largest value
const OUTLIER_FACTOR = 3; // values above this multiple of the 98th percentile are cut off and labelled
const MAX_CUT_LABELS = 6; // in a chart

/** Return the value at the top of the axis: the largest, unless it is an outlier. */
function axisTop(values) {
  const sorted = values.filter(isKnown).sort((a, b) => a - b);
  const largest = sorted.at(-1) ?? 0;
  const typical = sorted[Math.floor(0.98 * (sorted.length - 1))] ?? 0;
  const hasOutliers = sorted.length > 4 && typical > 0 && largest > OUTLIER_FACTOR * typical;
  return hasOutliers ? 1.5 * typical : largest;
}

/** Label the largest values that are cut off, with a triangle at the top. */
function labelCutValues(plot, [x, ...series], unit) {
  const { ctx, bbox, scales } = plot;
  const cutValues = series
    .flatMap((values) => values.map((y, k) => ({ step: x[k], y })))
    .filter(({ step, y }) => y > scales.y.max && step >= scales.x.min && step <= scales.x.max)
    .sort((a, b) => b.y - a.y);
  const positions = [];
  ctx.save();
  [ctx.textAlign, ctx.textBaseline] = ["left", "alphabetic"];
  ctx.font = `${12 * devicePixelRatio}px ${FONT.slice(5)}`;
  for (const { step, y } of cutValues) {
    const text = `▲ ${unit(y)}`;
    const width = ctx.measureText(text).width;
    const x = plot.valToPos(step, "x", true) - 5 * devicePixelRatio;
    const left = Math.min(x, bbox.left + bbox.width - width);
    const overlaps = positions.some((other) => Math.abs(other - left) < width + 8);
    if (positions.length >= MAX_CUT_LABELS || overlaps) continue;
    positions.push(left);
    ctx.fillStyle = currentColour("var(--panel)");
    ctx.fillRect(left - 2, bbox.top, width + 4, 13 * devicePixelRatio);
    ctx.fillStyle = currentColour("var(--text)");
    ctx.fillText(text, left, bbox.top + 10 * devicePixelRatio);
  }
  ctx.restore();
}

/** Return the value of a line nearest to a step, or null if none is within its reach. */
function valueAt({ x, y, reach = 1 }, step) {
  if (!x.length) return null;
  let k = Math.min(countBelow(x, step), x.length - 1);
  if (k > 0 && step - x[k - 1] <= x[k] - step) k -= 1;
  return Math.abs(x[k] - step) <= reach ? y[k] : null;
}

/**
 * Add a chart to the page, unless no line has a value.
 *
 * `makeLines` returns the lines; it is called again when another machine is selected. A line has
 * `label`, `colour` (in CSS), `x` and `y`, and may have `low` and `high` (the range of a bin),
 * `dash`, `width`, `reach` (in steps, see `valueAt`), `connects_gaps` and `scales_axis` (false: the
 * vertical axis ignores the line). `layers` stacks the lines as bars; `log` makes the vertical axis
 * logarithmic, and omits values that are not positive.
 */
function addChart({ title, note = "", unit, makeLines, log = false, layers = false, height = 180 }) {
  const currentLines = () => makeLines().map((line) => (log ? onlyPositive(line) : line));
  let lines = currentLines();
  if (!lines.some((line) => line.y.some(isKnown))) return;
  const labels = lines.map((line) => el("span", { text: line.label }));
  const values = lines.map(() => el("b"));
  const isShown = lines.map(() => true);
  const description = lines.map((line) => describeLine(line, unit)).join("; ");
  const container = el("div", { class: "plot", role: "img", "aria-label": `${title}. ${description}` });
  const entries = lines.map((line, i) => {
    const toggle = ({ currentTarget }) => {
      isShown[i] = !isShown[i];
      currentTarget.setAttribute("aria-pressed", isShown[i]);
      seriesOfLine[i].forEach((index) => plot.setSeries(index, { show: isShown[i] }));
    };
    const style = layers ? "layer" : line.dash ? (line.dash[0] < 3 ? "dotted" : "dashed") : "";
    const parts = [el("span", { class: `sample ${style}`, colour: line.colour }), labels[i], values[i]];
    if (layers) return el("span", { class: "entry" }, ...parts);
    return el("button", { type: "button", class: "entry", "aria-pressed": isShown[i], onclick: toggle }, ...parts);
  });
  const legend = el("ul", { class: "legend" }, ...entries.map((entry) => el("li", {}, entry)));
  const heading = el("figcaption", {}, el("h3", { text: title }), el("p", { class: "note", text: note }));
  byId("charts").append(el("figure", { class: "chart" }, heading, legend, container));

  const seriesOfLine = lines.map(() => []); // indices of the uPlot series of each line
  const series = [{}];
  const bands = [];
  // The highest layer is drawn first, and the others over it.
  (layers ? [...lines].reverse() : lines).forEach((line, i) => {
    const add = (options) => seriesOfLine[i].push(series.push({ show: isShown[i], ...options }) - 1);
    const stroke = () => currentColour(line.colour);
    if (layers) {
      const paths = uPlot.paths.bars({ size: [1, 60], gap: 0 });
      add({ fill: stroke, width: 0, paths, points: { show: false } });
      return;
    }
    if (line.low) {
      const edge = { stroke: "transparent", width: 1, points: { show: false } };
      add(edge);
      add(edge);
      const fill = () => currentColour(`color-mix(in srgb, ${line.colour} 22%, transparent)`);
      bands.push({ series: [series.length - 2, series.length - 1], fill });
    }
    const { dash, width = 1.5, connects_gaps = false, scales_axis = true } = line;
    const points = { show: line.x.length <= 40, size: 5, fill: stroke };
    add({ stroke, width, dash, points, spanGaps: connects_gaps, auto: scales_axis });
  });

  const grid = { stroke: () => currentColour("var(--rule)"), width: 1 };
  const axis = { stroke: () => currentColour("var(--muted)"), font: FONT, grid, ticks: { show: false } };
  const plotWidth = () => container.clientWidth || 600;
  // The first of stacked layers is their sum.
  const scaledColumns = () =>
    layers ? [data[1]] : data.slice(1).filter((_, i) => series[i + 1].auto !== false);
  const verticalRange = () => {
    const [from, to] = [countBelow(data[0], view.from), countBelow(data[0], view.to)];
    const visible = scaledColumns().flatMap((column) => column.slice(from, to)).filter(isKnown);
    const top = axisTop(visible);
    const bottom = visible.reduce((a, b) => Math.min(a, b), 0);
    return [bottom, HEADROOM * (top > 0 ? top : 1)];
  };
  let data = columnsOf(lines, layers);
  const plot = new uPlot(
    {
      width: plotWidth(),
      height,
      padding: [8, RIGHT_MARGIN, 0, 0],
      cursor: { show: false },
      legend: { show: false },
      select: { show: false },
      scales: {
        x: { time: false, auto: false, min: view.from, max: view.to },
        y: log ? { distr: 3 } : { range: verticalRange },
      },
      axes: [
        { ...axis, size: AXIS_HEIGHT, splits: () => axisSteps(plotWidth()), values: (_, xs) => xs.map(formatWhole) },
        { ...axis, size: LEFT_MARGIN, space: 34, values: (_, ys) => ys.map((y) => (y === null ? "" : unit(y))) },
      ],
      series,
      bands,
      hooks: { draw: log ? [] : [(self) => labelCutValues(self, [data[0], ...scaledColumns()], unit)] },
    },
    data,
    container,
  );
  addOverlay(container, height - AXIS_HEIGHT);

  let machine = view.machine;
  const update = () => {
    if (machine !== view.machine) {
      machine = view.machine;
      lines = currentLines();
      lines.forEach((line, i) => (labels[i].textContent = line.label));
      data = columnsOf(lines, layers);
      plot.setData(data, false);
      plot.redraw();
    }
    const step = currentStep();
    lines.forEach((line, i) => (values[i].textContent = step === null ? "" : unit(valueAt(line, step))));
  };
  update();
  onChange("selection", update);
  onChange("range", () => plot.setScale("x", { min: view.from, max: view.to }));
  redraws.push(() => plot.redraw(false, true));
  new ResizeObserver(() => plot.setSize({ width: plotWidth(), height })).observe(container);
}

/** Return the data of uPlot: x, then the values of each series. */
function columnsOf(lines, layers) {
  if (!layers) {
    return uPlot.join(lines.map(({ x, y, low, high }) => (low ? [x, high, low, y] : [x, y])));
  }
  let sum = lines[0].x.map(() => 0);
  const sums = lines.map(({ y }) => (sum = sum.map((value, k) => value + (y[k] ?? 0))));
  return [lines[0].x, ...sums.reverse()];
}

/** Return a line without values that a logarithmic axis cannot show. */
function onlyPositive(line) {
  const filter = (values) => values?.map((y) => (y > 0 ? y : null));
  return { ...line, y: filter(line.y), low: filter(line.low), high: filter(line.high) };
}

/** Return the description of a line for screen readers. */
function describeLine({ label, y }, unit) {
  const values = y.filter(isKnown).sort((a, b) => a - b);
  if (!values.length) return `${label}: no values`;
  return `${label}: median ${unit(values[values.length >> 1])}, largest ${unit(values.at(-1))}`;
}
