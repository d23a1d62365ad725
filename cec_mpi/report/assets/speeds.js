// The chart of speeds: each machine a line, of which one stands out; of many, their range.

const MOST_LINES = 40;
const NEAR = 24; // pixels between the pointer and a line that it means

/** A chart with a line for each machine; `standsOut` gives the one that does, or null. */
class MachineChart extends Chart {
  constructor(parent, options) {
    super(parent, options);
    for (const what of ["step", "hover"]) when(what, () => this.setOff());
    this.listen();
  }

  /** The machine whose line the pointer is next to stands out; a click picks it. */
  listen() {
    this.plot.addEventListener("pointermove", (event) => {
      const { top } = this.uplot.over.getBoundingClientRect();
      const y = event.clientY - top;
      const step = shownStep();
      const apart = this.lines.map((line) => {
        const value = line.machine && step !== null ? nearest(line, step) : null;
        return value === null ? Infinity : Math.abs(this.uplot.valToPos(value, "y") - y);
      });
      const least = Math.min(...apart);
      pointAt(least < NEAR ? this.lines[apart.indexOf(least)].machine : null);
    });
    this.plot.addEventListener("pointerleave", () => pointAt(null));
    this.plot.addEventListener("pointerup", () => pointed !== null && setMachine(pointed));
  }

  /** Draw the lines anew where another one stands out now. */
  setOff() {
    const now = this.standsOut();
    if (now === this.now) return;
    this.now = now;
    this.uplot.redraw(false);
    this.lines.forEach((line, i) => line.machine && this.values[i].parentElement.classList.toggle("out", line.machine === now));
  }

  /** Names at the ends of lines, and the line that stands out above the others. */
  drawNames(uplot) {
    const { ctx, bbox, pxRatio } = uplot;
    const now = this.standsOut();
    const ends = [];
    ctx.save();
    this.lines.forEach((line, i) => {
      if (!line.machine) return;
      const ys = uplot.data[this.places[i].at(-1)];
      const points = ys.map((y, at) => [uplot.data[0][at], y]).filter(([x, y]) => y !== undefined && x >= view.from && x <= view.to);
      const at = points.filter(([, y]) => y !== null).map(([x, y]) => [uplot.valToPos(x, "x", true), uplot.valToPos(y, "y", true)]);
      if (!at.length) return;
      if (line.machine === now) {
        ctx.lineWidth = 2.75 * pxRatio;
        ctx.lineCap = "round"; // a step by itself is a dot
        ctx.strokeStyle = line.paint();
        ctx.beginPath();
        let next = 0;
        points.forEach(([, y], place) => {
          if (y === null) return; // the machine was away: the line has a gap
          const [across, down] = at[next++];
          if (points[place - 1]?.[1] == null) ctx.moveTo(across, down);
          ctx.lineTo(across, down);
        });
        ctx.stroke();
      }
      if (this.lines.length <= SERIES || line.machine === now) ends.push({ x: at.at(-1)[0], y: at.at(-1)[1], line });
    });
    const gap = 12 * pxRatio;
    const last = ends.filter(({ x }) => x > bbox.left + bbox.width - 2 * gap).sort((a, b) => a.y - b.y);
    last.forEach((end, i) => (end.y = Math.max(end.y, i ? last[i - 1].y + gap : gap / 2)));
    let most = bbox.top + bbox.height;
    for (const end of [...last].reverse()) {
      end.y = Math.min(end.y, most);
      most = end.y - gap;
    }
    ctx.font = `${11 * pxRatio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const { x, y, line } of ends) {
      ctx.fillStyle = line.paint();
      ctx.fillText(`${line.machine}`, x + 5 * pxRatio, y);
    }
    ctx.restore();
  }
}

function speeds(parent) {
  RUNS.forEach((run, index) => {
    if (!run.speeds?.bins.length) return;
    const x = run.speeds.bins.map((bin) => middles(run)[bin]);
    const reach = Math.max(run.bin, (view.last - view.first) / Math.max(x.length, 1));
    const one = (machine, label, options) => ({
      label, machine, x, y: run.speeds.machines[machine - 1], reach, ...options,
    });
    const title = `Speeds${RUNS.length > 1 ? `, run ${LETTERS[index]}` : ""}`;
    const first = run.by_machine?.rows[0]?.[0] ?? null;
    const isFew = run.machines <= SERIES;
    const standsOut = () => outstanding(run, isFew ? null : first);
    if (run.machines <= MOST_LINES) {
      const lines = run.speeds.machines.map((_, i) =>
        one(i + 1, isFew ? `machine ${i + 1}` : `${i + 1}`, {
          width: isFew ? 1.5 : 1,
          paint: () => {
            const now = standsOut();
            if (now === i + 1) return isFew ? seriesColour(i) : colour("measured");
            return now === null && isFew ? seriesColour(i) : colour("faded");
          },
        }),
      );
      const how = isFew ? "" : "; others than the one that is pointed at or picked are grey";
      add(parent, { title, note: `Rows per second that each machine showed, medians of neighbours${how}.`, unit: UNITS.rate, lines, group: median, standsOut });
      return;
    }
    const sorted = x.map((_, i) => run.speeds.machines.map((ys) => ys[i]).filter((y) => y !== null).sort((a, b) => a - b));
    const at = (part) => sorted.map((ys) => (ys.length ? ys[Math.round(part * (ys.length - 1))] : null));
    const picked = () => outstanding(run, first) ?? 1;
    const label = () => `machine ${picked()}, ${view.hasMachine ? "picked" : `which ${run.by_machine?.first ?? "is first"}`}`;
    const chart = add(parent, {
      title,
      note: "Rows per second: the range over all machines, their median, and one machine; pick it on the map, in a table or by its number.",
      unit: UNITS.rate,
      group: median,
      lines: [
        { label: "median of the machines", x, y: at(0.5), low: at(0), high: at(1), range: "range-measured", reach, span: true, paint: () => colour("measured") },
        { ...one(picked(), label(), { paint: () => colour("hindsight"), width: 2 }), machine: undefined },
      ],
    });
    let shown = label();
    for (const what of ["step", "hover"]) {
      when(what, () => {
        if (label() === shown) return;
        shown = label();
        chart.replace(1, one(picked(), shown, {}));
      });
    }
  });
}
