// The assignment of a step, drawn as in the paper: a lane for each machine, rows along it.

const LOADS_WIDTH = 76; // right margin, for the number of rows of each machine

function addAssignments() {
  const drawable = RUNS.filter((run) => run.assignments.length);
  byId("assignment-section").hidden = !drawable.length;
  if (!drawable.length) return;
  const slider = byId("assignment");
  const canvas = byId("drawing");
  let run, assignment, selectionKey;

  /** Return the index of the assignment of a step, or of the nearest assignment on the page. */
  function indexOfStep(step) {
    const list = run.assignments;
    const index = Math.max(list.findLastIndex((entry) => entry.step <= step), 0);
    const distance = step - list[index].last_step;
    const isNextNearer = index + 1 < list.length && distance > 0 && list[index + 1].step - step < distance;
    return isNextNearer ? index + 1 : index;
  }

  function show() {
    const key = `${view.step} ${view.run.number}`;
    if (selectionKey === key) return;
    selectionKey = key;
    run = drawable.includes(view.run) ? view.run : drawable[0];
    slider.max = run.assignments.length - 1;
    slider.value = indexOfStep(view.step ?? firstStep);
    assignment = run.assignments[+slider.value];
    const { step, last_step: last, available, blocks } = assignment;
    const end = last > step ? ` (until step ${formatWhole(last)})` : "";
    const machines = `${available.length} of ${plural(run.machines, "machine")} available`;
    const rows = `${plural(blocks.length, "block")} of ${formatWhole(run.rows)} rows`;
    const text = `${addLetter(run, "")}Step ${formatWhole(step)}${end}: ${machines}, ${rows}.`;
    const isOutside = view.step !== null && (view.step < step || view.step > last);
    const nearest = `This page lacks the assignment of step ${formatWhole(view.step)}; this is the nearest one.`;
    const omitted = run.omitted ? `${plural(run.omitted, "other assignment")} omitted.` : "";
    byId("assignment-text").textContent = `${text} ${isOutside ? nearest : omitted}`;
    slider.setAttribute("aria-valuetext", text);
    canvas.setAttribute("aria-label", `Assignment. ${text} The table below lists its blocks.`);
    draw();
    fillTables();
  }

  const reasonOfAbsence = (machine) => assignment.absence_reasons?.[machine] ?? "preempted";

  function draw() {
    const width = canvas.parentElement.clientWidth;
    if (!width) return;
    const laneHeight = clamp(480 / run.machines, 1.5, 26);
    const gap = laneHeight >= 8 ? 2 : 0;
    const context = resizeCanvas(canvas, width, run.machines * laneHeight + AXIS_HEIGHT);
    const laneWidth = width - LEFT_MARGIN - LOADS_WIDTH;
    const xOfRow = (row) => LEFT_MARGIN + (row / run.rows) * laneWidth;
    const top = (machine) => (machine - 1) * laneHeight;
    const write = (text, x, y, align) => {
      context.textAlign = align;
      context.fillText(text, x, y, align === "right" ? LOADS_WIDTH - 6 : laneWidth);
    };
    const drawBar = (machine, start, stop, colour) => {
      context.fillStyle = currentColour(colour);
      const barWidth = Math.max(xOfRow(stop) - xOfRow(start) - gap / 2, 0.5);
      context.fillRect(xOfRow(start), top(machine), barWidth, laneHeight - gap);
    };
    context.textBaseline = "middle";
    const available = new Set(assignment.available);
    for (let n = 1; n <= run.machines; n++) {
      if (available.has(n)) drawBar(n, 0, run.rows, "var(--sunken)");
      if (n % Math.ceil(14 / laneHeight)) continue;
      context.fillStyle = currentColour("var(--muted)");
      const y = top(n) + (laneHeight - gap) / 2;
      write(`${n}`, LEFT_MARGIN - 8, y, "right");
      write(available.has(n) ? formatWhole(assignment.loads[n - 1]) : reasonOfAbsence(n), width - 2, y, "right");
    }
    assignment.blocks.forEach(([start, stop, machines], i) => {
      for (const machine of machines) {
        drawBar(machine, start, stop, `var(--block-${i % SERIES_COLOURS})`);
        if (laneHeight < 14 || xOfRow(stop) - xOfRow(start) < 18) continue;
        context.fillStyle = currentColour("var(--on-block)");
        const y = top(machine) + (laneHeight - gap) / 2;
        write(`${i + 1}`, (xOfRow(start) + xOfRow(stop)) / 2, y, "center");
      }
    });
    context.fillStyle = currentColour("var(--text)");
    for (const [machine, intervals] of Object.entries(laneHeight < 6 ? {} : assignment.new_rows ?? {})) {
      const bottom = top(+machine) + laneHeight - gap;
      for (const [start, stop] of intervals) {
        context.fillRect(xOfRow(start), bottom - 3, xOfRow(stop) - xOfRow(start), 3);
      }
    }
    context.fillStyle = currentColour("var(--muted)");
    const y = top(run.machines + 1) + 12;
    for (const row of ticks(0, run.rows, laneWidth / 80)) write(formatWhole(row), xOfRow(row), y, "center");
    write("rows", width - 2, y, "right");
  }

  function fillTables() {
    const { blocks, available, loads, new_rows: intervals, speeds } = assignment;
    byId("blocks").replaceChildren(
      ...blocks.map(([start, stop, machines], i) => {
        const swatch = el("span", { class: "swatch", colour: `var(--block-${i % SERIES_COLOURS})` });
        const head = el("span", {}, swatch, `${i + 1}`);
        const rows = `${formatWhole(start)}–${formatWhole(stop - 1)}`;
        return tableRow(head, [rows, formatWhole(stop - start), machines.join(" ")]);
      }),
    );
    const availableSet = new Set(available);
    byId("machines").replaceChildren(
      ...loads.map((load, i) => {
        const newRows = (intervals?.[i + 1] ?? []).reduce((sum, [start, stop]) => sum + stop - start, 0);
        const [share, speed] = [UNITS.percent(load / run.rows), UNITS.number(speeds?.[i])];
        const cells = [formatWhole(load), share, speed, formatWhole(newRows)];
        const head = link(formatMachine(run, i + 1), run, { machine: i + 1 });
        return tableRow(head, availableSet.has(i + 1) ? cells : [reasonOfAbsence(i + 1), "–", "–", "–"]);
      }),
    );
  }

  slider.addEventListener("input", () => {
    view.run = run;
    selectStep(run.assignments[+slider.value].step);
  });
  show();
  onChange("selection", show);
  redraws.push(draw);
  new ResizeObserver(draw).observe(canvas.parentElement);
}
