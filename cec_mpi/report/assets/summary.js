// The top of the page: what ran, in words, what to act on, and how runs compare.

const FEW = 6; // rows of a table at first
const STATE = { done: "good", "broke off": "bad", "still going": "going" };

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
  const body = el("div", { class: "run-body" }, el("div", {}, words, warnings), facts);
  return el("section", { class: "run" }, heading, body, run.by_machine?.rows.length ? machineTable(run) : null);
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

/** What each machine did and cost: the first few, the others on demand. */
function machineTable(run) {
  const { columns, rows } = run.by_machine;
  const writers = columns.map(({ unit }, i) => columnWriter(unit, rows.map((row) => row[i + 1])));
  const all = rows.map(([machine, ...values]) => {
    const host = run.names[machine - 1];
    const cells = values.map((value, i) => el("td", { class: columns[i].unit === "text" ? "text" : null, text: writers[i](value) }));
    return el("tr", {}, el("th", { scope: "row", text: host ? `${machine} · ${host}` : `${machine}` }), ...cells);
  });
  const body = el("tbody", {}, ...all.slice(0, FEW));
  const more = el("button", { type: "button", text: `All ${whole(rows.length)} machines`, onclick: () => (body.append(...all.slice(FEW)), more.remove()) });
  const names = ["Machine", ...columns.map((column) => column.label)];
  return el(
    "div",
    { class: "by-machine" },
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `What each machine did, ${run.name}` },
      el("table", { class: "numbers" }, el("caption", { text: "By machine" }), el("thead", {}, el("tr", {}, ...names.map((text) => el("th", { scope: "col", text })))), body)),
    rows.length > FEW ? el("div", { class: "controls" }, more) : null,
  );
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
  const rows = RUNS.map((run, i) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", text: `${LETTERS[i]}: ${run.name}` }),
      el("td", { text: whole(run.steps) }),
      el("td", { text: UNITS.seconds(totalOf(run)) }),
      el("td", { text: i ? ratio(totalOf(run), totalOf(base)) : "1" }),
      el("td", { text: UNITS.seconds(middleMakespan(run)) }),
      el("td", { text: i ? ratio(middleMakespan(run), middleMakespan(base)) : "1" }),
      el("td", { text: whole(run.events.length) }),
    ),
  );
  const names = ["Run", "Steps", "Time", "Time over A", "Median makespan", "Makespan over A", "Events"];
  return el(
    "section",
    { class: "panel", "aria-labelledby": "compared" },
    el("h2", { id: "compared", text: "The runs compared" }),
    el("div", { class: "words" }, ...(DATA.words ?? []).map((text) => el("p", { text }))),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "compared" },
      el(
        "table",
        { class: "numbers", "aria-labelledby": "compared" },
        el("thead", {}, el("tr", {}, ...names.map((text) => el("th", { scope: "col", text })))),
        el("tbody", {}, ...rows),
      ),
    ),
  );
}

function summary(parent) {
  byId("title").textContent = DATA.title;
  document.title = DATA.title;
  const made = new Date(DATA.made);
  byId("made").textContent = isNaN(made) ? "" : `Made ${made.toISOString().slice(0, 16).replace("T", " ")} UTC`;
  parent.classList.toggle("several", RUNS.length > 1);
  parent.append(...RUNS.map(runSummary));
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
