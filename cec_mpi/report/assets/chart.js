// A chart along the steps: lines with what they are between, or layers on one another (uPlot).

const ROOM = 1.08; // of the axis over the largest value
const FAR = 3; // times the 98th percentile: larger values are cut, and marked with what they are
const MARKS = 6; // of cut values in a chart

/** Where the axis ends: at the largest value, unless few values are far above all others. */
function topOf(values) {
  const sorted = values.filter(isNumber).sort((a, b) => a - b);
  const most = sorted.at(-1) ?? 0;
  const usual = sorted[Math.floor(0.98 * (sorted.length - 1))] ?? 0;
  return sorted.length > 4 && usual > 0 && most > FAR * usual ? 1.5 * usual : most;
}

/** Mark the largest values that are cut: a triangle at the top, and the value. */
function markCut(uplot, [x, ...series], unit) {
  const { ctx, bbox, scales } = uplot;
  const cut = series
    .flatMap((values) => values.map((y, at) => ({ step: x[at], y })))
    .filter(({ step, y }) => y > scales.y.max && step >= scales.x.min && step <= scales.x.max)
    .sort((a, b) => b.y - a.y);
  const drawn = [];
  ctx.save();
  [ctx.textAlign, ctx.textBaseline] = ["left", "alphabetic"];
  ctx.font = `${12 * devicePixelRatio}px ${FONT.slice(5)}`;
  for (const { step, y } of cut) {
    const at = uplot.valToPos(step, "x", true);
    const text = `▲ ${unit(y)}`;
    const wide = ctx.measureText(text).width;
    const from = Math.min(at - 5 * devicePixelRatio, bbox.left + bbox.width - wide);
    if (drawn.length >= MARKS || drawn.some((other) => Math.abs(other - from) < wide + 8)) continue;
    drawn.push(from);
    ctx.fillStyle = colour("var(--panel)");
    ctx.fillRect(from - 2, bbox.top, wide + 4, 13 * devicePixelRatio);
    ctx.fillStyle = colour("var(--text)");
    ctx.fillText(text, from, bbox.top + 10 * devicePixelRatio);
  }
  ctx.restore();
}

/** The value of a line at a step, or null where it has none thereabouts. */
function nearest({ x, y, reach = 1 }, step) {
  if (!x.length) return null;
  let at = Math.min(placeOf(x, step), x.length - 1);
  if (at > 0 && step - x[at - 1] <= x[at] - step) at -= 1;
  return Math.abs(x[at] - step) <= reach ? y[at] : null;
}

/**
 * Add a chart to the page, unless no line has a value.
 *
 * `lines` gives the lines, again when another machine is picked. A line has `label`, `paint` (a
 * colour of CSS), `x`, `y`, and may have `low` and `high` (what the values of a bin cover), `dash`,
 * `width`, `reach` (steps that a value holds for), `span` (it goes on where it has no values) and
 * `scales` (false: the axis ignores the line). `layers` puts the lines on one another, `log` has a
 * logarithmic axis, which leaves out what is not positive.
 */
function chart({ title, note = "", unit, lines, log = false, layers = false, height = 180 }) {
  let made = lines().map((line) => (log ? positive(line) : line));
  if (!made.some((line) => line.y.some(isNumber))) return;
  const names = made.map((line) => el("span", { text: line.label }));
  const values = made.map(() => el("b"));
  const shown = made.map(() => true);
  const words = made.map((line) => summary(line, unit)).join("; ");
  const plot = el("div", { class: "plot", role: "img", "aria-label": `${title}. ${words}` });
  const entries = made.map((line, i) => {
    const toggle = ({ currentTarget }) => {
      shown[i] = !shown[i];
      currentTarget.setAttribute("aria-pressed", shown[i]);
      places[i].forEach((at) => uplot.setSeries(at, { show: shown[i] }));
    };
    const look = layers ? "layer" : line.dash ? (line.dash[0] < 3 ? "dotted" : "dashed") : "";
    const words = [el("span", { class: `sample ${look}`, colour: line.paint }), names[i], values[i]];
    if (layers) return el("span", { class: "entry" }, ...words);
    return el("button", { type: "button", class: "entry", "aria-pressed": shown[i], onclick: toggle }, ...words);
  });
  const legend = el("ul", { class: "legend" }, ...entries.map((entry) => el("li", {}, entry)));
  const heading = el("figcaption", {}, el("h3", { text: title }), el("p", { class: "note", text: note }));
  byId("charts").append(el("figure", { class: "chart" }, heading, legend, plot));

  const places = made.map(() => []); // the series of uPlot that a line has
  const options = [{}];
  const bands = [];
  // Of layers the highest is drawn first, and the others over it.
  (layers ? [...made].reverse() : made).forEach((line, i) => {
    const add = (more) => places[i].push(options.push({ show: shown[i], ...more }) - 1);
    const stroke = () => colour(line.paint);
    const points = { show: line.x.length <= 40, size: 5, fill: stroke };
    if (layers) {
      const paths = uPlot.paths.bars({ size: [1, 60], gap: 0 });
      add({ fill: stroke, width: 0, paths, points: { show: false } });
      return;
    }
    if (line.low) {
      const range = { stroke: "transparent", width: 1, points: { show: false } };
      add(range);
      add(range);
      const fill = () => colour(`color-mix(in srgb, ${line.paint} 22%, transparent)`);
      bands.push({ series: [options.length - 2, options.length - 1], fill });
    }
    const { dash, width = 1.5, span = false, scales = true } = line;
    add({ stroke, width, dash, points, spanGaps: span, auto: scales });
  });

  const grid = { stroke: () => colour("var(--rule)"), width: 1 };
  const axis = { stroke: () => colour("var(--muted)"), font: FONT, grid, ticks: { show: false } };
  const wide = () => plot.clientWidth || 600;
  // Of layers the first series is their sum.
  const counting = () => (layers ? [data[1]] : data.slice(1).filter((_, i) => options[i + 1].auto !== false));
  const range = () => {
    const [from, to] = [placeOf(data[0], view.from), placeOf(data[0], view.to)];
    const seen = counting().flatMap((values) => values.slice(from, to)).filter(isNumber);
    const top = topOf(seen);
    return [Math.min(0, seen.reduce((a, b) => Math.min(a, b), 0)), ROOM * (top > 0 ? top : 1)];
  };
  let data = columns(made, layers);
  const uplot = new uPlot(
    {
      width: wide(),
      height,
      padding: [8, RIGHT, 0, 0],
      cursor: { show: false },
      legend: { show: false },
      select: { show: false },
      scales: {
        x: { time: false, auto: false, min: view.from, max: view.to },
        y: log ? { distr: 3 } : { range },
      },
      axes: [
        { ...axis, size: AXIS, splits: () => axisSteps(wide()), values: (_, at) => at.map(whole) },
        { ...axis, size: LEFT, space: 34, values: (_, ys) => ys.map((y) => (y === null ? "" : unit(y))) },
      ],
      series: options,
      bands,
      hooks: { draw: log ? [] : [(its) => markCut(its, [data[0], ...counting()], unit)] },
    },
    data,
    plot,
  );
  overlay(plot, height - AXIS);

  let machine = view.machine;
  const tell = () => {
    if (machine !== view.machine) {
      machine = view.machine;
      made = lines().map((line) => (log ? positive(line) : line));
      made.forEach((line, i) => (names[i].textContent = line.label));
      data = columns(made, layers);
      uplot.setData(data, false);
      uplot.redraw();
    }
    const step = shownStep();
    made.forEach((line, i) => (values[i].textContent = step === null ? "" : unit(nearest(line, step))));
  };
  tell();
  when("step", tell);
  when("window", () => uplot.setScale("x", { min: view.from, max: view.to }));
  redraws.push(() => uplot.redraw(false, true));
  new ResizeObserver(() => uplot.setSize({ width: wide(), height })).observe(plot);
}

/** The lines as columns over one x. */
function columns(lines, layers) {
  if (!layers) {
    return uPlot.join(lines.map(({ x, y, low, high }) => (low ? [x, high, low, y] : [x, y])));
  }
  let under = lines[0].x.map(() => 0);
  const sums = lines.map(({ y }) => (under = under.map((sum, at) => sum + (y[at] ?? 0))));
  return [lines[0].x, ...sums.reverse()];
}

/** A line as a logarithmic axis can show it. */
function positive(line) {
  const only = (values) => values?.map((y) => (y > 0 ? y : null));
  return { ...line, y: only(line.y), low: only(line.low), high: only(line.high) };
}

/** A line for whoever cannot see it. */
function summary({ label, y }, unit) {
  const values = y.filter(isNumber).sort((a, b) => a - b);
  if (!values.length) return `${label}: no values`;
  return `${label}: median ${unit(values[values.length >> 1])}, largest ${unit(values.at(-1))}`;
}
