// Which charts there are, and what each takes from the data.

const PARTS = {
  compute: "computation",
  collect: "collecting answers",
  decode: "decoding",
  load: "reading shards",
  share: "sharing w",
  announce: "announcing the assignment",
  waiting: "waiting for machines",
};

/** The middle of each bin along the steps. */
function middles(run) {
  run.middles ??= run.at.map((_, bin) => {
    const [first, last] = stepsOf(run, bin);
    return (first + last) / 2;
  });
  return run.middles;
}

const withRun = (i, label) => (RUNS.length > 1 ? `${LETTERS[i]} ${label}` : label);
const hasValues = (values) => values?.some((y) => y !== null && y !== undefined) ?? false;

/** A line of each run that has this series. */
function linesOf(name, label, options) {
  return RUNS.flatMap((run, i) => {
    const series = run.series[name];
    const y = series?.value ?? series?.mid;
    if (!hasValues(y)) return [];
    const range = series.min && options.range ? { low: series.min, high: series.max } : {};
    const paint = () => (RUNS.length > 1 ? seriesColour(i) : colour(options.colour));
    const shade = RUNS.length > 1 ? `range-${i % SERIES}` : options.range;
    return [{ label: withRun(i, label), x: middles(run), y, reach: run.bin, ...options, ...range, paint, range: shade }];
  });
}

function add(parent, options) {
  const lines = options.lines.filter((line) => line.x.length);
  return lines.length ? new Chart(parent, { ...options, lines }) : null;
}

/** Values that a logarithmic axis can show. */
const positive = (lines) =>
  lines
    .map((line) => {
      const only = (values) => values?.map((y) => (y > 0 ? y : null));
      return { ...line, y: only(line.y), low: only(line.low), high: only(line.high) };
    })
    .filter((line) => hasValues(line.y));

const binned = () => (RUNS.some((run) => run.bin > 1) ? "A line is the median of each bin, the shade around it the range." : null);

function makespans(parent) {
  add(parent, {
    title: "Makespan",
    note: ["Time of the machine that takes longest.", binned()].filter(Boolean).join(" "),
    unit: UNITS.seconds,
    height: 230,
    lines: [
      ...linesOf("measured", "measured", { colour: "measured", range: "range-measured", width: 1.75 }),
      ...linesOf("predicted", "predicted", { colour: "predicted", dash: [2, 3], off: RUNS.length > 1 }),
      ...linesOf("hindsight", "best in hindsight", { colour: "hindsight", dash: [7, 3] }),
    ],
  });
}

function elapsed(parent) {
  if (RUNS.length < 2) return;
  const lines = RUNS.map((run, i) => ({
    label: withRun(i, "elapsed"), x: middles(run), y: run.time, reach: run.bin, paint: () => seriesColour(i),
  }));
  add(parent, { title: "Time since the start", unit: UNITS.seconds, lines });
  const [base, ...others] = RUNS;
  const ratios = others.map((run, i) => ({
    label: `${LETTERS[i + 1]} over A`,
    x: middles(run),
    y: middles(run).map((step, bin) => {
      const its = nearest({ x: middles(base), y: base.time, reach: base.bin }, step);
      return its > 0 && run.time[bin] !== null ? run.time[bin] / its : null;
    }),
    reach: run.bin,
    paint: () => seriesColour(i + 1),
  }));
  add(parent, { title: "Ratio of the times", note: "Time since the start over that of run A, at the same step.", unit: short, lines: ratios });
}

function speeds(parent) {
  RUNS.forEach((run, index) => {
    if (!run.speeds?.bins.length) return;
    const x = run.speeds.bins.map((bin) => middles(run)[bin]);
    const reach = Math.max(run.bin, (view.last - view.first) / Math.max(x.length, 1));
    const one = (machine, options) => ({
      label: `machine ${machine}`, x, y: run.speeds.machines[machine - 1], reach, span: true, ...options,
    });
    const title = `Speeds${RUNS.length > 1 ? `, run ${LETTERS[index]}` : ""}`;
    if (run.machines <= SERIES) {
      const lines = run.speeds.machines.map((_, i) => one(i + 1, { paint: () => seriesColour(i) }));
      add(parent, { title, note: "Rows per second that each machine showed, medians of neighbours.", unit: UNITS.rate, lines, group: median });
      return;
    }
    const sorted = x.map((_, i) => run.speeds.machines.map((ys) => ys[i]).filter((y) => y !== null).sort((a, b) => a - b));
    const at = (part) => sorted.map((ys) => (ys.length ? ys[Math.round(part * (ys.length - 1))] : null));
    const middle = at(0.5);
    const typical = middle.findLast((y) => y !== null) ?? 0;
    const ends = run.speeds.machines.map((ys) => ys.findLast((y) => y !== null) ?? typical);
    const order = ends.map((_, i) => i).sort((a, b) => ends[a] - ends[b]);
    const picked = () => clamp(view.machine, 1, run.machines);
    const chart = add(parent, {
      title,
      note: "Rows per second: the range over all machines, their median, the slowest and the fastest at the end, and the machine that is picked on the map.",
      unit: UNITS.rate,
      group: median,
      lines: [
        { label: "median of the machines", x, y: middle, low: at(0), high: at(1), range: "range-measured", reach, span: true, paint: () => colour("measured") },
        one(order[0] + 1, { paint: () => colour("hindsight"), dash: [7, 3] }),
        one(order.at(-1) + 1, { paint: () => colour("predicted"), dash: [2, 3] }),
        one(picked(), { paint: () => colour("series-2"), width: 2 }),
      ],
    });
    let shown = picked();
    when("step", () => {
      if (picked() === shown) return;
      shown = picked();
      chart.replace(3, one(shown, {}));
    });
  });
}

function parts(parent) {
  RUNS.forEach((run, index) => {
    const names = [...Object.keys(PARTS), ...Object.keys(run.parts)].filter((name, i, all) => all.indexOf(name) === i);
    const lines = names
      .filter((name) => run.parts[name]?.some((y) => y > 0))
      .map((name) => ({
        label: PARTS[name] ?? name,
        x: middles(run),
        reach: run.bin,
        paint: () => colour(PARTS[name] ? `part-${name}` : "muted"),
        y: run.parts[name].map((sum, bin) => {
          const [first, last] = stepsOf(run, bin);
          return sum / (last - first + 1);
        }),
      }));
    const title = `Where each step's time went${RUNS.length > 1 ? `, run ${LETTERS[index]}` : ""}`;
    add(parent, { title, note: "Seconds per step, the means of neighbours, on one another in the order of the legend.", unit: UNITS.seconds, lines, layers: true, group: mean });
  });
}

function others(parent) {
  add(parent, {
    title: "Time over the optimum",
    note: "How much longer a step took than the best assignment in hindsight.",
    unit: UNITS.percent,
    lines: linesOf("regret", "over the optimum", { colour: "measured", range: "range-measured" }),
  });
  add(parent, {
    title: "Bytes",
    note: "What the master sends and receives in a step.",
    unit: UNITS.bytes,
    lines: linesOf("bytes", "bytes per step", { colour: "measured", range: "range-measured" }),
  });
  add(parent, {
    title: "Error bound",
    note: "Largest error of a row over the largest row; logarithmic.",
    unit: short,
    log: true,
    lines: positive(linesOf("error_bound", "error bound", { colour: "measured", range: "range-measured" })),
  });
  add(parent, {
    title: "Condition",
    note: "Largest condition number that a step was decoded with; logarithmic.",
    unit: short,
    log: true,
    lines: positive(linesOf("condition", "condition", { colour: "measured", range: "range-measured" })),
  });
}

/** How the solver got on: one chart for each thing that its task reports. */
function progress(parent) {
  const names = [...new Set(RUNS.flatMap((run) => run.progress.map((each) => each.name)))];
  for (const name of names) {
    let log = false;
    const lines = RUNS.flatMap((run, i) =>
      run.progress
        .filter((each) => each.name === name)
        .map((each) => {
          log ||= each.log;
          const reach = Math.max(1, (view.last - view.first) / Math.max(each.step.length, 1));
          const paint = () => (RUNS.length > 1 ? seriesColour(i) : colour("measured"));
          return { label: withRun(i, name), x: each.step, y: each.value, reach, span: true, paint };
        }),
    );
    const title = name.charAt(0).toUpperCase() + name.slice(1);
    const marked = RUNS.some((run) => run.checkpoints.length) ? "Ticks at its foot are checkpoints." : null;
    const note = [log ? "Logarithmic." : null, marked].filter(Boolean).join(" ");
    add(parent, { title, note, unit: short, log, moments: true, lines: log ? positive(lines) : lines, height: 200 });
  }
  return names.length > 0;
}
