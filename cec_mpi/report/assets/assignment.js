// The assignment of a step as the paper draws it: machines by the rows of their shards.

const LOADS = 76; // room for rows, at the right

function assignments() {
  const filled = RUNS.filter((run) => run.assignments.length);
  byId("assignment-section").hidden = !filled.length;
  if (!filled.length) return;
  const slider = byId("assignment");
  const canvas = byId("drawing");
  let run, current, shown;

  /** Which assignment held at a step, or the nearest that is kept. */
  function holding(step) {
    const list = run.assignments;
    const at = Math.max(list.findLastIndex((each) => each.step <= step), 0);
    const apart = step - list[at].until;
    return at + 1 < list.length && apart > 0 && list[at + 1].step - step < apart ? at + 1 : at;
  }

  function show() {
    if (shown === `${view.step} ${view.run.number}`) return;
    shown = `${view.step} ${view.run.number}`;
    run = filled.includes(view.run) ? view.run : filled[0];
    slider.max = run.assignments.length - 1;
    slider.value = holding(view.step ?? first);
    current = run.assignments[+slider.value];
    const { step, until, available, blocks } = current;
    const held = until > step ? ` (held until step ${whole(until)})` : "";
    const there = `${available.length} of ${plural(run.machines, "machine")} available`;
    const made = `${plural(blocks.length, "block")} of ${whole(run.rows)} rows`;
    const text = `${named(run, "")}Step ${whole(step)}${held}: ${there}, ${made}.`;
    const isOther = view.step !== null && (view.step < step || view.step > until);
    const near = `The assignment of step ${whole(view.step)} is not held here; this is the nearest.`;
    const more = run.left_out ? `${plural(run.left_out, "further assignment")} not held here.` : "";
    byId("assignment-words").textContent = `${text} ${isOther ? near : more}`;
    slider.setAttribute("aria-valuetext", text);
    canvas.setAttribute("aria-label", `Assignment. ${text} The table beneath has its blocks.`);
    draw();
    fill();
  }

  /** Why a machine is not available, as far as that is known. */
  const away = (machine) => current.away?.[machine] ?? "preempted";

  function draw() {
    const width = canvas.parentElement.clientWidth;
    if (!width) return;
    const high = clamp(480 / run.machines, 1.5, 26);
    const gap = high >= 8 ? 2 : 0;
    const context = sharp(canvas, width, run.machines * high + AXIS);
    const inner = width - LEFT - LOADS;
    const x = (row) => LEFT + (row / run.rows) * inner;
    const top = (machine) => (machine - 1) * high;
    const text = (words, at, y, align) => {
      context.textAlign = align;
      context.fillText(words, at, y, align === "right" ? LOADS - 6 : inner);
    };
    const bar = (machine, start, stop, paint) => {
      context.fillStyle = colour(paint);
      context.fillRect(x(start), top(machine), Math.max(x(stop) - x(start) - gap / 2, 0.5), high - gap);
    };
    context.textBaseline = "middle";
    const available = new Set(current.available);
    for (let n = 1; n <= run.machines; n++) {
      if (available.has(n)) bar(n, 0, run.rows, "var(--sunken)");
      if (n % Math.ceil(14 / high)) continue;
      context.fillStyle = colour("var(--muted)");
      const y = top(n) + (high - gap) / 2;
      text(`${n}`, LEFT - 8, y, "right");
      text(available.has(n) ? whole(current.loads[n - 1]) : away(n), width - 2, y, "right");
    }
    current.blocks.forEach(([start, stop, its], i) => {
      for (const machine of its) {
        bar(machine, start, stop, `var(--block-${i % SERIES})`);
        if (high < 14 || x(stop) - x(start) < 18) continue;
        context.fillStyle = colour("var(--on-block)");
        text(`${i + 1}`, (x(start) + x(stop)) / 2, top(machine) + (high - gap) / 2, "center");
      }
    });
    context.fillStyle = colour("var(--text)");
    for (const [machine, pieces] of Object.entries(high < 6 ? {} : current.moved ?? {})) {
      const foot = top(+machine) + high - gap;
      for (const [start, stop] of pieces) context.fillRect(x(start), foot - 3, x(stop) - x(start), 3);
    }
    context.fillStyle = colour("var(--muted)");
    const foot = top(run.machines + 1) + 12;
    for (const row of ticks(0, run.rows, inner / 80)) text(whole(row), x(row), foot, "center");
    text("rows", width - 2, foot, "right");
  }

  function fill() {
    const { blocks, available, loads, moved, speeds } = current;
    byId("blocks").replaceChildren(
      ...blocks.map(([start, stop, its], i) => {
        const swatch = el("span", { class: "swatch", colour: `var(--block-${i % SERIES})` });
        const head = el("span", {}, swatch, `${i + 1}`);
        return row(head, [`${whole(start)}–${whole(stop - 1)}`, whole(stop - start), its.join(" ")]);
      }),
    );
    const up = new Set(available);
    byId("machines").replaceChildren(
      ...loads.map((load, i) => {
        const fresh = (moved?.[i + 1] ?? []).reduce((sum, [start, stop]) => sum + stop - start, 0);
        const its = [whole(load), UNITS.percent(load / run.rows), UNITS.number(speeds?.[i]), whole(fresh)];
        const head = link(machineName(run, i + 1), run, { machine: i + 1 });
        return row(head, up.has(i + 1) ? its : [away(i + 1), "–", "–", "–"]);
      }),
    );
  }

  slider.addEventListener("input", () => {
    view.run = run;
    setStep(run.assignments[+slider.value].step);
  });
  show();
  when("step", show);
  redraws.push(draw);
  new ResizeObserver(draw).observe(canvas.parentElement);
}
