// The top of the page: what ran, in words, what to act on, and how runs compare.

const FEW = 6; // rows of a table at first
const SUM_COLOURS = { talk: "collect", outside: "announce" };
const STATE = { done: "good", stopped: "going", "broke off": "bad", "still going": "going" };

function runSummary(run, index) {
  const many = RUNS.length > 1;
  const name = many ? `${LETTERS[index]}: ${run.name}` : run.name;
  const heading = el(
    "div",
    { class: "run-head" },
    many ? el("span", { class: "swatch", "aria-hidden": "true" }) : null,
    el("h2", { text: name }),
    el("span", { class: `state ${STATE[run.state] ?? ""}`, text: run.state }),
  );
  if (many) drawn(() => (heading.firstChild.style.background = seriesColour(index)));
  const words = el("div", { class: "words" }, ...run.words.map((text) => el("p", { text })));
  const facts = el("dl", { class: "facts" });
  for (const { label, text } of run.facts) facts.append(el("div", {}, el("dt", { text: label }), el("dd", { text })));
  const warnings = run.warnings.length
    ? el(
        "div",
        { class: "warnings", role: "note" },
        el("h3", { text: plural(run.warnings.length, "warning") }),
        el("ul", {}, ...run.warnings.map((text) => el("li", { text }))),
      )
    : null;
  const body = el(
    "div",
    { class: "run-body" },
    el("div", {}, words, warnings, run.by_machine?.rows.length ? machineTable(run) : null),
    el("div", {}, run.sum ? wholeSum(run) : null, run.comparisons?.length ? otherwise(run) : null, facts),
  );
  return el("section", { class: "run" }, heading, body);
}

/** Where the time of a run went: a bar, and its parts, which add up. */
function wholeSum(run) {
  const { whole: total, parts: its } = run.sum;
  const bar = el("div", { class: "sum-bar", "aria-hidden": "true" });
  const rows = its.map(({ part, label, note, text, share }) => {
    const piece = el("span");
    piece.style.flexGrow = share;
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    for (const each of [piece, swatch]) each.style.background = `var(--part-${SUM_COLOURS[part] ?? part})`;
    bar.append(piece);
    return el("tr", {}, el("th", { scope: "row" }, swatch, label, el("span", { class: "what-it-is", text: note })), cell("took", text), cell("share", UNITS.percent(+share.toFixed(3))));
  });
  rows.push(el("tr", { class: "total" }, el("th", { scope: "row", text: "All of the run, until its last step" }), cell("took", total), cell("share", UNITS.percent(1))));
  const made = table({ caption: `Where the ${total} went`, names: ["Part", "Took", "Share"], rows });
  made.box.querySelector("table").classList.remove("cards");
  return el("div", { class: "sum" }, bar, made.box);
}

/** What the same steps would have taken with other shares. */
function otherwise(run) {
  const rows = run.comparisons.flatMap((each) => {
    const made = [["would have taken", each.theirs_of], ["this run took", each.mine_of]].filter(([, of]) => of).map(([name, of]) => `It ${name} ${of}.`.replace("It this", "This"));
    const note = [each.note, ...made, `In ${plural(each.steps, "step")} that tell.`].join(" ");
    return [
      el(
        "tr",
        {},
        el("th", { scope: "row", text: each.label }),
        cell("would have taken", UNITS.seconds(each.theirs)),
        cell("this run took", UNITS.seconds(each.mine)),
        cell("that is", each.text),
      ),
      el("tr", { class: "note-row" }, el("td", { colspan: "4", class: "text what-it-is", text: note })),
    ];
  });
  const names = ["Shared out otherwise", "Would have taken", "This run took", "That is"];
  return table({ caption: "What computing would have taken otherwise, in the same steps", kind: "numbers otherwise", names, rows }).box;
}

/** How the values of a column are written: seconds all to the same digit. */
function columnWriter(unit, values) {
  if (unit === "text") return (value) => value ?? "";
  if (unit === "whole") return whole;
  const largest = Math.max(...values.map((value) => value ?? 0));
  if (unit !== "seconds" || largest < 1e-3 || largest >= 600) return UNITS[unit] ?? short;
  const [factor, name] = largest < 1 ? [1000, "ms"] : [1, "s"];
  const digits = clamp(2 - Math.floor(Math.log10(factor * largest)), 0, 2);
  return (value) => (value === null ? "–" : `${(factor * value).toFixed(digits)}\u00a0${name}`);
}

/** A row of a table that leads to its machine on the map and in the chart of speeds. */
function machineRow(machine, name, cells) {
  const link = el("button", { type: "button", class: "link", text: name, "aria-label": `Machine ${name}: show it on the map and in the chart of speeds`, onclick: () => setMachine(machine) });
  const row = el("tr", { "data-machine": machine, class: isPicked(machine) ? "picked" : null, onpointerenter: () => pointAt(machine), onpointerleave: () => pointAt(null) }, el("th", { scope: "row" }, link), ...cells);
  return row;
}

const isPicked = (machine) => view.hasMachine && view.machine === machine;

function markPicked() {
  for (const row of document.querySelectorAll("tr[data-machine]")) row.classList.toggle("picked", isPicked(+row.dataset.machine));
}

/** A part of all that is no whole when something is missing. */
const partText = (x) => (x > 0 && x < 1e-3 ? "< 0.1\u00a0%" : UNITS.percent(Math.floor(x * 1e3) / 1e3));

/** What each machine did and cost: the first few, the others on demand. */
function machineTable(run) {
  const { columns, rows, caption, note: about } = run.by_machine;
  const writers = columns.map(({ unit }, i) => (unit === "percent" ? partText : columnWriter(unit, rows.map((row) => row[i + 1]))));
  const made = (some) => some.map(([machine, ...values]) => {
    const host = run.names[machine - 1];
    const cells = values.map((value, i) => cell(columns[i].label, writers[i](value), columns[i].unit === "text" ? "text" : null));
    return machineRow(machine, host ? `${machine} · ${host}` : `${machine}`, cells);
  });
  const { box, body } = table({ caption, names: ["Machine", ...columns.map((column) => column.label)], rows: [] });
  box.setAttribute("aria-label", `What each machine did, ${run.name}`);
  body.append(...made(rows.slice(0, FEW)));
  const more = el("button", { type: "button", text: `All ${whole(rows.length)} machines`, onclick: () => (body.append(...made(rows.slice(FEW))), more.remove()) });
  const note = el("p", { class: "note", text: about });
  return el("div", { class: "by-machine" }, box, note, rows.length > FEW ? el("div", { class: "controls" }, more) : null);
}

const totalOf = (run) => run.seconds ?? run.time.findLast((t) => t !== null) ?? null;

function middleMakespan(run) {
  const series = run.series.measured;
  const values = (series?.value ?? series?.mid ?? []).filter((y) => y !== null).sort((a, b) => a - b);
  return values.length ? values[values.length >> 1] : null;
}

/** Two or more runs beside each other, with the ratio of their times. */
function comparison() {
  const [base] = RUNS;
  const ratio = (its, first) => (its !== null && first ? `${(its / first).toPrecision(3)} ×` : "–");
  const names = ["Run", "Steps", "Time", "Time over A", "Median makespan", "Makespan over A", "Events"];
  const rows = RUNS.map((run, i) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", text: `${LETTERS[i]}: ${run.name}` }),
      ...[
        whole(run.steps),
        UNITS.seconds(totalOf(run)),
        i ? ratio(totalOf(run), totalOf(base)) : "1",
        UNITS.seconds(middleMakespan(run)),
        i ? ratio(middleMakespan(run), middleMakespan(base)) : "1",
        whole(run.events.length),
      ].map((text, k) => cell(names[k + 1], text)),
    ),
  );
  const made = table({ caption: "The runs compared", hidden: true, names, rows });
  made.box.querySelector("table").setAttribute("aria-labelledby", "compared");
  return el(
    "section",
    { class: "panel", "aria-labelledby": "compared" },
    el("h2", { id: "compared", text: "The runs compared" }),
    el("div", { class: "words" }, ...(DATA.words ?? []).map((text) => el("p", { text }))),
    made.box,
  );
}

function summary(parent) {
  byId("title").textContent = DATA.title;
  document.title = DATA.title;
  const made = new Date(DATA.made);
  byId("made").textContent = isNaN(made) ? "" : `Made ${made.toISOString().slice(0, 16).replace("T", " ")} UTC`;
  parent.classList.toggle("several", RUNS.length > 1);
  parent.append(...RUNS.map(runSummary));
  when("step", markPicked);
  if (RUNS.length > 1) parent.after(comparison());
}

/** While the run goes on the page is loaded again, and keeps where one was. */
function beginRefresh() {
  const restore = kept.get("place");
  if (restore) {
    scrollTo(0, restore.top);
    if (restore.focus) byId(restore.focus)?.focus({ preventScroll: true });
    kept.set("place", null);
  }
  if (!DATA.refresh || !RUNS.some((run) => run.state === "still going")) return;
  const box = byId("reloading");
  const check = el("input", { type: "checkbox", id: "reload" });
  check.checked = kept.get("reload", true);
  check.addEventListener("change", () => kept.set("reload", check.checked));
  box.append(el("label", {}, check, ` Reload every ${short(DATA.refresh)} s`));
  setInterval(() => {
    const busy = document.activeElement?.matches("input[type=search], input[type=number], select");
    if (!check.checked || document.hidden || busy) return;
    kept.set("place", { top: scrollY, focus: document.activeElement?.id ?? "" });
    location.reload();
  }, Math.max(DATA.refresh, 1) * 1000);
}
