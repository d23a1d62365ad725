// Builds the page from the parts in the other scripts.

/** Return the lines of speeds: of all machines or, if they are many, their range and one machine. */
function speedLines(run) {
  const x = run.speeds.bins.map((bin) => binCentres(run)[bin]);
  const reach = Math.max(run.bin_width, (lastStep - firstStep) / Math.max(x.length, 1));
  const speeds = run.speeds.by_machine;
  if (run.machines <= SERIES_COLOURS) {
    return speeds.map((y, i) => ({
      label: `machine ${formatMachine(run, i + 1)}`, colour: seriesColour(i), x, y, reach,
    }));
  }
  const sorted = x.map((_, k) => speeds.map((y) => y[k]).filter(isKnown).sort((a, b) => a - b));
  const quantile = (p) => sorted.map((values) => (values.length ? values[Math.round(p * (values.length - 1))] : null));
  const machine = clamp(view.machine ?? run.first_in_table, 1, run.machines);
  const note = view.machine === null ? ", the first of the table" : "";
  const bounds = { low: quantile(0), high: quantile(1) };
  const rangeLine = { y: quantile(0.5), ...bounds, connects_gaps: true, colour: "var(--measured)" };
  const machineLine = { y: speeds[machine - 1], width: 2, colour: "var(--hindsight)" };
  return [
    { label: "median and range of all machines", x, reach, ...rangeLine },
    { label: `machine ${formatMachine(run, machine)}${note}`, x, reach, ...machineLine },
  ];
}

function addCharts() {
  const addSteps = (line) => {
    const run = DATA.runs[line.run - 1];
    const reach = line.x ? (lastStep - firstStep) / line.x.length : run.bin_width;
    return { x: binCentres(run), reach: Math.max(reach, 1), ...line };
  };
  for (const { run, lines, unit, ...options } of DATA.charts) {
    const makeLines = run ? () => speedLines(DATA.runs[run - 1]) : () => lines.map(addSteps);
    addChart({ ...options, unit: UNITS[unit], makeLines });
  }
}

function addToolbar() {
  const actions = { "zoom-in": () => zoom(0.5), "zoom-out": () => zoom(2), all: showAll };
  for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
  for (const [id, select] of [["step", selectStep], ["machine", selectMachine]]) {
    byId(id).addEventListener("change", ({ target }) => target.value !== "" && select(+target.value));
  }
  const update = () => {
    const end = `${formatWhole(Math.floor(view.to))} of ${formatWhole(lastStep - firstStep + 1)}`;
    const text = `Steps ${formatWhole(Math.ceil(view.from))}–${end}`;
    if (byId("range").textContent !== text) byId("range").textContent = text;
    byId("zoom-out").disabled = byId("all").disabled = showsAll();
    byId("step").value = view.step ?? "";
    byId("machine").value = view.machine ?? "";
    for (const machineLink of document.querySelectorAll(".by-machine a")) {
      const isSelected = machineLink.hash.endsWith(`machine=${view.machine}`);
      machineLink.closest("tr").classList.toggle("selected", isSelected);
    }
  };
  update();
  onChange("selection", update);
}

/** Reload the page at intervals while a run continues; keep the scroll position. */
function startReloading() {
  if (!DATA.reload_seconds || !DATA.runs.some((run) => run.state === "running")) return;
  const load = (key) => sessionStorage.getItem(`${location.pathname} ${key}`);
  const store = (key, value) => sessionStorage.setItem(`${location.pathname} ${key}`, value);
  const onchange = () => store("reload", checkbox.checked);
  const checkbox = el("input", { type: "checkbox", id: "reload", onchange });
  checkbox.checked = load("reload") !== "false";
  byId("reloading").append(el("label", {}, checkbox, ` Reload every ${formatWhole(DATA.reload_seconds)} s`));
  scrollTo(0, load("top") ?? 0);
  setInterval(() => {
    const isBusy = document.hidden || document.activeElement?.matches("input:not([type=checkbox])");
    if (!checkbox.checked || isBusy) return;
    store("top", scrollY);
    location.reload();
  }, Math.max(DATA.reload_seconds, 1) * 1000);
}

if (RUNS.length) {
  byId("figures").hidden = false;
  addMapLegend();
  readAddress();
  addToolbar();
  RUNS.forEach(addMap);
  addCharts();
  addAssignments();
  addEvents();
  addEventListener("hashchange", () => (readAddress(), byId("time-section").scrollIntoView()));
}
startReloading();
requestAnimationFrame(() => (root.dataset.ready = "yes"));
