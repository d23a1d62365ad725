// What happened, as a table: filtered by kind, machine and words; a row leads to its step.

const PAGE = 100;
const PRINTED = 2000;

class Events {
  constructor(parent) {
    this.all = RUNS.flatMap((run, index) => run.events.map((event) => ({ run, index, event })));
    this.all.sort((a, b) => a.event[0] - b.event[0] || a.index - b.index);
    this.off = new Set(kept.get("kinds off", []));
    this.page = 0;
    this.search = el("input", { type: "search", id: "event-search", value: kept.get("event search", ""), autocomplete: "off", placeholder: "3, or late", oninput: () => this.filter() });
    this.body = el("tbody");
    this.count = el("p", { class: "note", role: "status" });
    this.back = el("button", { type: "button", text: "Earlier", onclick: () => this.turn(-1) });
    this.forth = el("button", { type: "button", text: "Later", onclick: () => this.turn(1) });
    const names = [RUNS.length > 1 ? "Run" : null, "Step", "Machine", "What", "Why"].filter(Boolean);
    const table = el(
      "table",
      { class: "events cards" },
      el("caption", { class: "unseen", text: "Events; a row leads to its step" }),
      el("thead", {}, el("tr", {}, ...names.map((text) => el("th", { scope: "col", text })))),
      this.body,
    );
    parent.append(
      el("div", { class: "filters controls" }, this.kinds(), el("label", { class: "search" }, "Machine number or words ", this.search)),
      this.count,
      el("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Table of events" }, table),
      el("div", { class: "controls pages" }, this.back, this.forth),
    );
    this.filter();
    addEventListener("beforeprint", () => this.fill(0, PRINTED));
    addEventListener("afterprint", () => this.fill());
  }

  kinds() {
    const numbers = new Map();
    for (const { event } of this.all) numbers.set(event[1], (numbers.get(event[1]) ?? 0) + 1);
    const boxes = [...numbers.keys()].sort((a, b) => a - b).map((index) => {
      const kind = DATA.kinds[index];
      if (!kind) return null;
      const check = el("input", { type: "checkbox" });
      check.checked = !this.off.has(kind.kind);
      check.addEventListener("change", () => {
        if (check.checked) this.off.delete(kind.kind);
        else this.off.add(kind.kind);
        kept.set("kinds off", [...this.off]);
        this.filter();
      });
      return el("label", { class: "kind" }, check, markPicture(kind), el("span", { text: `${wordsOf(kind)} ` }), el("span", { class: "count", text: whole(numbers.get(index)) }));
    });
    return el("fieldset", { class: "kinds" }, el("legend", { class: "unseen", text: "Kinds of events" }), ...boxes);
  }

  filter() {
    const wanted = this.search.value.trim().toLowerCase();
    kept.set("event search", this.search.value);
    this.found = this.all.filter(({ run, event: [, index, machine, text] }) => {
      const kind = DATA.kinds[index];
      if (kind && this.off.has(kind.kind)) return false;
      if (!wanted) return true;
      if (/^\d+$/.test(wanted)) return machine === +wanted;
      return `${wordsOf(kind)} ${text ?? ""} ${run.names[machine - 1] ?? ""}`.toLowerCase().includes(wanted);
    });
    this.page = 0;
    this.fill();
  }

  turn(way) {
    this.page += way;
    this.fill();
    this.body.closest(".scroll").scrollTop = 0;
  }

  fill(begin = this.page * PAGE, most = PAGE) {
    const shown = this.found.slice(begin, begin + most);
    this.body.replaceChildren(...shown.map((each) => this.row(each)));
    const total = this.found.length;
    const range = total > most ? `, ${whole(begin + 1)}–${whole(begin + shown.length)} shown` : "";
    this.count.textContent = total === this.all.length ? `${plural(total, "event")}${range}` : `${whole(total)} of ${plural(this.all.length, "event")}${range}`;
    this.back.disabled = this.page === 0;
    this.forth.disabled = begin + PAGE >= total;
    this.back.parentElement.hidden = total <= PAGE;
  }

  row({ run, index, event: [step, kindIndex, machine, text] }) {
    const kind = DATA.kinds[kindIndex];
    const host = machine ? run.names[machine - 1] : "";
    const go = () => {
      view.run = index;
      setStep(step);
      if (machine) setMachine(machine);
      say(`Step ${step} is picked on the map and in the assignment.`);
    };
    const link = el("button", { type: "button", class: "link", text: whole(step), "aria-label": `Show step ${step}` });
    return el(
      "tr",
      { onclick: go },
      RUNS.length > 1 ? cell("Run", LETTERS[index]) : null,
      cell("Step", link, "number"),
      cell("Machine", machine ? `${machine}${host ? ` · ${host}` : ""}` : "–"),
      cell("", el("span", { class: "what" }, kind ? markPicture(kind) : null, el("span", { text: wordsOf(kind) }))),
      cell("", text ?? ""),
    );
  }
}
