// The page put together.

/** Speeds of few machines, or of many their range, and one of them. */
function speedsOf(run) {
  const x = run.speeds.bins.map((bin) => middles(run)[bin]);
  const reach = Math.max(run.bin, (last - first) / Math.max(x.length, 1));
  const its = run.speeds.machines;
  if (run.machines <= SERIES) {
    return its.map((y, i) => ({ label: `machine ${machineName(run, i + 1)}`, paint: series(i), x, y, reach }));
  }
  const sorted = x.map((_, at) => its.map((y) => y[at]).filter(isNumber).sort((a, b) => a - b));
  const part = (share) => sorted.map((ys) => (ys.length ? ys[Math.round(share * (ys.length - 1))] : null));
  const machine = clamp(view.machine ?? run.costliest, 1, run.machines);
  const which = view.machine === null ? ", which heads the table" : "";
  const range = { y: part(0.5), low: part(0), high: part(1), span: true, paint: "var(--measured)" };
  const one = { y: its[machine - 1], width: 2, paint: "var(--hindsight)" };
  return [
    { label: "median of all machines, and their range", x, reach, ...range },
    { label: `machine ${machineName(run, machine)}${which}`, x, reach, ...one },
  ];
}

/** The charts, of which those of runs without a step have nothing to show. */
function charts() {
  const lineOf = (line) => {
    const run = DATA.runs[line.run - 1];
    const reach = line.x ? (last - first) / line.x.length : run.bin;
    return { x: middles(run), reach: Math.max(reach, 1), ...line };
  };
  for (const { run, lines, unit, ...more } of DATA.charts) {
    const made = run ? () => speedsOf(DATA.runs[run - 1]) : () => lines.map(lineOf);
    chart({ ...more, unit: UNITS[unit], lines: made });
  }
}

/** Buttons for the window, fields for step and machine. */
function toolbar() {
  const act = { "zoom-in": () => zoom(0.5), "zoom-out": () => zoom(2), all: showAll };
  for (const [id, action] of Object.entries(act)) byId(id).addEventListener("click", action);
  for (const [id, pick] of [["step", setStep], ["machine", setMachine]]) {
    byId(id).addEventListener("change", ({ target }) => target.value !== "" && pick(+target.value));
  }
  const tell = () => {
    const of = `${whole(Math.floor(view.to))} of ${whole(last - first + 1)}`;
    const shown = `Steps ${whole(Math.ceil(view.from))}–${of}`;
    if (byId("window").textContent !== shown) byId("window").textContent = shown;
    byId("zoom-out").disabled = byId("all").disabled = isWhole();
    byId("step").value = view.step ?? "";
    byId("machine").value = view.machine ?? "";
    for (const each of document.querySelectorAll(".by-machine a")) {
      each.closest("tr").classList.toggle("picked", each.hash.endsWith(`machine=${view.machine}`));
    }
  };
  tell();
  when("step", tell);
}

/** While the run goes on the page is loaded again, and keeps where one was. */
function reloading() {
  if (!DATA.refresh || !DATA.runs.some((run) => run.state === "running")) return;
  const kept = (key) => sessionStorage.getItem(`${location.pathname} ${key}`);
  const keep = (key, value) => sessionStorage.setItem(`${location.pathname} ${key}`, value);
  const check = el("input", { type: "checkbox", id: "reload", onchange: () => keep("reload", check.checked) });
  check.checked = kept("reload") !== "false";
  byId("reloading").append(el("label", {}, check, ` Reload every ${whole(DATA.refresh)} s`));
  scrollTo(0, kept("top") ?? 0);
  setInterval(() => {
    const busy = document.hidden || document.activeElement?.matches("input:not([type=checkbox])");
    if (!check.checked || busy) return;
    keep("top", scrollY);
    location.reload();
  }, Math.max(DATA.refresh, 1) * 1000);
}

if (RUNS.length) {
  byId("drawn").hidden = false;
  mapKey();
  follow();
  toolbar();
  RUNS.forEach(machineMap);
  charts();
  assignments();
  events();
  addEventListener("hashchange", () => (follow(), byId("time-section").scrollIntoView()));
}
reloading();
requestAnimationFrame(() => (root.dataset.ready = "yes"));
