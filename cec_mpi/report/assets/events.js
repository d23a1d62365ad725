// The table of events, with a search by text or by the number of a machine.

const MAX_EVENTS = 200; // shown at first

function addEvents() {
  const allEvents = RUNS.flatMap((run) => run.events.map((event) => ({ run, event })));
  allEvents.sort((a, b) => a.event[0] - b.event[0] || a.run.number - b.run.number);
  byId("event-section").hidden = !allEvents.length;

  function matchesQuery({ run, event: [, kind, machine, text] }) {
    const query = byId("event-search").value.trim().toLowerCase();
    if (/^\d+$/.test(query)) return machine === +query;
    const searched = `${describeKind(DATA.kinds[kind])} ${text} ${run.hosts[machine - 1] ?? ""}`;
    return searched.toLowerCase().includes(query);
  }

  function fill(limit = MAX_EVENTS) {
    const matches = allEvents.filter(matchesQuery);
    byId("events").replaceChildren(
      ...matches.slice(0, limit).map(({ run, event: [step, kind, machine, text] }) => {
        const head = link(addLetter(run, formatWhole(step)), run, machine ? { step, machine } : { step });
        const description = el("span", {}, eventMark(DATA.kinds[kind]), ` ${describeKind(DATA.kinds[kind])}`);
        return tableRow(head, [machine ? formatMachine(run, machine) : "–", description, text ?? ""]);
      }),
    );
    const total = matches.length < allEvents.length ? ` of ${formatWhole(allEvents.length)}` : "";
    const limitNote = matches.length > limit ? `, the first ${formatWhole(limit)} shown` : "";
    const noun = allEvents.length > 1 ? "events" : "event";
    byId("event-count").textContent = `${formatWhole(matches.length)}${total} ${noun}${limitNote}`;
    byId("all-events").hidden = matches.length <= limit;
  }

  byId("event-search").addEventListener("input", () => fill());
  byId("all-events").addEventListener("click", () => fill(Infinity));
  fill();
}
