// What happened, as a table: found by words or a machine's number; a row leads to its step.

const MOST_EVENTS = 200; // that are shown at once

function events() {
  const all = RUNS.flatMap((run) => run.events.map((event) => ({ run, event })));
  all.sort((a, b) => a.event[0] - b.event[0] || a.run.number - b.run.number);
  byId("event-section").hidden = !all.length;

  function isWanted({ run, event: [, kind, machine, text] }) {
    const wanted = byId("event-search").value.trim().toLowerCase();
    if (/^\d+$/.test(wanted)) return machine === +wanted;
    const words = `${wordsOf(DATA.kinds[kind])} ${text} ${run.names[machine - 1] ?? ""}`;
    return words.toLowerCase().includes(wanted);
  }

  function fill(most = MOST_EVENTS) {
    const found = all.filter(isWanted);
    byId("events").replaceChildren(
      ...found.slice(0, most).map(({ run, event: [step, kind, machine, text] }) => {
        const head = link(named(run, whole(step)), run, machine ? { step, machine } : { step });
        const what = el("span", {}, markOf(DATA.kinds[kind]), ` ${wordsOf(DATA.kinds[kind])}`);
        return row(head, [machine ? machineName(run, machine) : "–", what, text ?? ""]);
      }),
    );
    const of = found.length < all.length ? ` of ${whole(all.length)}` : "";
    const shown = found.length > most ? `, the first ${whole(most)} shown` : "";
    byId("event-count").textContent = `${whole(found.length)}${of} event${all.length > 1 ? "s" : ""}${shown}`;
    byId("all-events").hidden = found.length <= most;
  }

  byId("event-search").addEventListener("input", () => fill());
  byId("all-events").addEventListener("click", () => fill(Infinity));
  fill();
}
