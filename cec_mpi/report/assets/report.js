// The page put together, once all its parts are there.

const KEPT = { lost: "was lost, and gone until it joins", away: "was not available: no answer yet, or asked no more" };

/** What the map's colours and marks stand for. */
function mapKey(parent) {
  const item = (sample, text) => el("li", {}, el("span", { class: "entry" }, sample, el("span", { text })));
  const used = new Set(RUNS.flatMap((run) => run.events.map((event) => event[1])));
  const told = new Set(); // a kind of event whose colour fills cells, too, has one entry
  DATA.states.forEach((state, i) => {
    if (!seenStates.has(i)) return;
    const kind = DATA.kinds.findIndex((each, k) => each.kind === state.state && used.has(k));
    const sample = el("span", { class: "sample layer", "aria-hidden": "true" });
    drawn(() => (sample.style.background = given(state)));
    if (kind >= 0) told.add(kind);
    const both = kind < 0 ? sample : el("span", { class: "both" }, markPicture(DATA.kinds[kind]), sample);
    parent.append(item(both, kind < 0 ? state.words : KEPT[state.state] ?? wordsOf(DATA.kinds[kind])));
  });
  parent.append(item(el("span", { class: "sample shade", "aria-hidden": "true" }), `computes none to ${UNITS.percent(shareOf(largestCell))} of its shard's rows`));
  DATA.kinds.forEach((kind, i) => {
    if (used.has(i) && !told.has(i)) parent.append(item(markPicture(kind), wordsOf(kind)));
  });
  if (RUNS.some((run) => run.checkpoints.length)) parent.append(item(el("span", { class: "sample tick", "aria-hidden": "true" }), "checkpoint"));
  if (RUNS.some((run) => run.resumes.length)) parent.append(item(el("span", { class: "sample resumed", "aria-hidden": "true" }), "resumed"));
}

/** Buttons for the window, and a field for the step. */
function toolbar() {
  const act = { "zoom-in": () => zoom(0.5), "zoom-out": () => zoom(2), earlier: () => pan(-0.5), later: () => pan(0.5), all: showAll };
  for (const [id, action] of Object.entries(act)) byId(id).addEventListener("click", action);
  const field = byId("step");
  field.min = view.first;
  field.max = view.last;
  field.addEventListener("change", () => field.value !== "" && setStep(+field.value));
  const machine = byId("machine");
  const most = Math.max(...RUNS.map((run) => run.machines));
  machine.max = most;
  machine.addEventListener("change", () => machine.value !== "" && setMachine(clamp(Math.round(+machine.value), 1, most)));
  when("step", () => view.hasMachine && (machine.value = view.machine));
  const tell = () => {
    byId("window").textContent = `Steps ${whole(Math.ceil(view.from))}–${whole(Math.floor(view.to))} of ${whole(view.last - view.first + 1)}`;
    byId("zoom-out").disabled = byId("all").disabled = byId("earlier").disabled = byId("later").disabled = isWhole();
  };
  when("window", () => (tell(), say(byId("window").textContent)));
  when("step", () => (field.value = view.step));
  if (view.step !== null) field.value = view.step;
  tell();
}

function resizeAll() {
  for (const chart of charts) chart.resize();
  for (const redraw of frames) redraw();
}

function begin() {
  beginTheme();
  beginView();
  summary(byId("runs"));
  const filled = RUNS.filter((run) => run.bins);
  if (filled.length) {
    unpackCells();
    toolbar();
    mapKey(byId("map-key"));
    RUNS.forEach((run, i) => run.bins && new MachineMap(byId("maps"), run, i));
    makespans(byId("makespans"));
    elapsed(byId("charts"));
    parts(byId("charts"));
    longest(byId("longest"));
    speeds(byId("charts"));
    others(byId("charts"));
    byId("solver").hidden = !progress(byId("progress"));
    if (RUNS.some((run) => run.assignments.length)) new Assignments(byId("assignments"));
    else byId("assignment-section").hidden = true;
    if (RUNS.some((run) => run.events.length)) new Events(byId("events"));
    else byId("event-section").hidden = true;
  } else {
    for (const id of ["time-section", "solver", "assignment-section", "event-section"]) byId(id).hidden = true;
  }
  beginPrinting(resizeAll);
  beginRefresh();
  requestAnimationFrame(() => {
    root.dataset.ready = `${Math.round(performance.now())}`;
  });
}

begin();
