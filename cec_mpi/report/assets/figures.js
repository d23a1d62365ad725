// Which charts there are, and what each takes from the data.

const PARTS = {
  compute: "computation",
  collect: "collecting answers",
  stall: "stalls (lost, given up, late or wrong)",
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
  const Kind = options.standsOut ? MachineChart : Chart;
  return lines.length ? new Kind(parent, { ...options, lines }) : null;
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

/** A few predictions that are far off would flatten what was measured: these run out of the chart. */
function beyond() {
  const largest = (name) => Math.max(0, ...RUNS.flatMap((run) => ["value", "mid", "max"].map((key) => (name === "predicted" && key === "max" ? 0 : most(run.series[name]?.[key])))));
  const top = ROOM * Math.max(largest("measured"), largest("hindsight"));
  return largest("predicted") > top ? `Predictions beyond the axis run out at the top; the largest is ${UNITS.seconds(largest("predicted"))}.` : null;
}

const most = (values) => (values ?? []).reduce((all, y) => Math.max(all, y ?? 0), 0);

function makespans(parent) {
  add(parent, {
    title: "Makespan",
    note: ["Time of the machine that takes longest.", binned(), beyond()].filter(Boolean).join(" "),
    unit: UNITS.seconds,
    height: 230,
    lines: [
      ...linesOf("measured", "measured", { colour: "measured", range: "range-measured", width: 1.75 }),
      ...linesOf("predicted", "predicted", { colour: "predicted", dash: [2, 3], off: RUNS.length > 1, beside: true }),
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

/** What steps spent their time on: usual ones, and, since no mean may hide it, the longest. */
function parts(parent) {
  RUNS.forEach((run, index) => {
    const named = (key) => Object.keys(PARTS).filter((name) => run.parts[name]?.value?.some((y) => y > 0) || run.parts[name]?.[key]?.some((y) => y > 0));
    const lines = (key) =>
      named(key).map((name) => ({
        label: PARTS[name],
        x: middles(run),
        reach: run.bin,
        paint: () => colour(`part-${name}`),
        y: run.parts[name].value ?? run.parts[name][key],
      }));
    const which = RUNS.length > 1 ? `, run ${LETTERS[index]}` : "";
    const common = { unit: UNITS.seconds, layers: true };
    add(parent, {
      ...common,
      title: `Where the longest steps' time went${which}`,
      note: "Of neighbouring steps the one that took longest, its parts on one another in the order of the legend.",
      lines: lines("top"),
      group: "longest",
    });
    add(parent, {
      ...common,
      title: `Where a usual step's time went${which}`,
      note: "Medians of neighbouring steps, part by part: what happens rarely is in the chart of the longest.",
      lines: lines("mid"),
      group: median,
    });
  });
}

/** The longest steps of all, what of, and what happened in them. */
function longest(parent) {
  RUNS.forEach((run, index) => {
    if (!run.longest?.length) return;
    const names = Object.keys(PARTS).filter((name) => run.longest.some((each) => each.parts[name] > 0));
    const rows = run.longest.map(({ step, seconds, parts: its }) => {
      const go = () => ((view.run = index), setStep(step), byId("time-section").scrollIntoView());
      const link = el("button", { type: "button", class: "link", text: whole(step), "aria-label": `Show step ${step} of the longest`, onclick: go });
      const most = names.reduce((a, b) => ((its[a] ?? 0) >= (its[b] ?? 0) ? a : b));
      const what = eventsBetween(run, step, step).map(([, kind, machine]) => `${machine ? `machine ${machine} ` : ""}${wordsOf(DATA.kinds[kind])}`);
      return el(
        "tr",
        {},
        el("th", { scope: "row" }, link),
        cell("took", UNITS.seconds(seconds)),
        cell("most of it", `${PARTS[most]}: ${UNITS.seconds(its[most])}`, "text"),
        cell("computation", UNITS.seconds(its.compute ?? 0)),
        cell("what happened", [...new Set(what)].slice(0, 4).join("; ") || "–", "text"),
      );
    });
    const caption = `The ${rows.length === 1 ? "only step" : `${rows.length} longest steps`}${RUNS.length > 1 ? ` of run ${LETTERS[index]}` : ""}`;
    parent.append(table({ caption, names: ["Step", "Took", "Most of it", "Computation", "What happened"], rows, kind: "numbers longest" }).box);
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
    title: "Error",
    note: "Largest error of an entry over the largest entry: likely, and at most; logarithmic.",
    unit: short,
    log: true,
    lines: positive([
      ...linesOf("error_estimate", "estimate", { colour: "measured", range: "range-measured" }),
      ...linesOf("error_bound", "bound", { colour: "hindsight", dash: [7, 3] }),
    ]),
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
