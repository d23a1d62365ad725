// What figures along the steps have in common: one width, marks of steps, and the pointer.

const LEFT = 64;
const RIGHT = 30; // room for the last step's number, and for names of lines
const AXIS = 24; // height of the axis of steps
const frames = [];

/** Where a step lies in a figure of this width, and back. */
const xOf = (step, width) => LEFT + ((step - view.from) / (view.to - view.from)) * (width - LEFT - RIGHT);
const stepAt = (x, width) => view.from + ((x - LEFT) / (width - LEFT - RIGHT)) * (view.to - view.from);

/** Lay over a figure: the picked step, the one that is pointed at, and what is being selected. */
function frame(element, height) {
  const marks = Object.fromEntries(
    ["picked", "pointed", "selected"].map((name) => [name, el("div", { class: `mark ${name}`, hidden: true })]),
  );
  element.classList.add("frame");
  element.append(...Object.values(marks));
  const width = () => element.clientWidth;

  function place(mark, step) {
    const outside = step === null || step < view.from || step > view.to;
    mark.hidden = outside;
    if (!outside) mark.style.transform = `translateX(${xOf(step, width())}px)`;
    mark.style.height = `${height()}px`;
  }
  const redraw = () => {
    place(marks.picked, view.step);
    place(marks.pointed, hovered);
  };
  for (const what of ["window", "step", "hover"]) when(what, redraw);
  frames.push(redraw);
  pointing(element, marks.selected, width, height);
  return redraw;
}

function pointing(element, selected, width, height) {
  let start = null;
  const at = (event) => {
    const x = event.clientX - element.getBoundingClientRect().left;
    return clamp(x, LEFT, width() - RIGHT);
  };
  element.addEventListener("pointermove", (event) => {
    const x = at(event);
    setHover(clamp(Math.round(stepAt(x, width())), view.first, view.last));
    if (start === null) return;
    selected.hidden = Math.abs(x - start) < 5;
    selected.style.transform = `translateX(${Math.min(x, start)}px)`;
    selected.style.width = `${Math.abs(x - start)}px`;
    selected.style.height = `${height()}px`;
  });
  element.addEventListener("pointerleave", () => setHover(null));
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    start = at(event);
    try {
      element.setPointerCapture(event.pointerId);
    } catch {
      // The pointer has left already.
    }
  });
  element.addEventListener("pointercancel", () => {
    start = null;
    selected.hidden = true;
  });
  element.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const [from, to] = [start, at(event)].sort((a, b) => a - b).map((x) => stepAt(x, width()));
    const moved = Math.abs(at(event) - start);
    start = null;
    selected.hidden = true;
    if (moved >= 5) setWindow(from, to);
    else setStep(stepAt(at(event), width()));
  });
  element.addEventListener("dblclick", showAll);
  element.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      const way = event.deltaY || event.deltaX;
      zoom(2 ** clamp(way / 200, -1, 1), stepAt(at(event), width()));
    },
    { passive: false },
  );
}

/** A canvas as sharp as the screen, and its context in CSS pixels. */
function sharp(canvas, width, height) {
  const ratio = printing ? 2 : Math.max(devicePixelRatio, 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** Round numbers between two, about so many. */
function ticks(from, to, count, least = 1) {
  const rough = Math.max((to - from) / Math.max(count, 1), least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const gap = Math.max([1, 2, 5, 10].find((n) => n * power >= rough) * power, least);
  const found = [];
  for (let x = Math.ceil(from / gap) * gap; x <= to; x += gap) found.push(Math.round(x / gap) * gap || 0);
  return found;
}

/** Steps that get a number at the foot of a figure of this width; the last one always does. */
function axisSteps(width) {
  const last = Math.floor(view.to);
  const inner = width - LEFT - RIGHT;
  const room = ((view.to - view.from) / inner) * (12 + 8 * whole(last).length);
  return [...ticks(view.from, view.to, inner / 90).filter((step) => last - step > room), last];
}

/** The mark of a kind of event: its shape says the kind, not its colour alone. */
function drawMark(context, mark, x, y, size, paint, ground) {
  const r = size / 2;
  const path = new Path2D();
  const filled = !"xo+_".includes(mark);
  if (mark === "x") {
    path.moveTo(x - r, y - r), path.lineTo(x + r, y + r);
    path.moveTo(x - r, y + r), path.lineTo(x + r, y - r);
  } else if (mark === "+") {
    path.moveTo(x - r, y), path.lineTo(x + r, y);
    path.moveTo(x, y - r), path.lineTo(x, y + r);
  } else if (mark === "_") {
    path.moveTo(x - r, y), path.lineTo(x + r, y);
  } else if (mark === "^" || mark === "v") {
    const way = mark === "^" ? 1 : -1;
    path.moveTo(x - r, y + way * r), path.lineTo(x + r, y + way * r), path.lineTo(x, y - way * r);
  } else if (mark === ">" || mark === "<") {
    const way = mark === ">" ? 1 : -1;
    path.moveTo(x - way * r, y - r), path.lineTo(x - way * r, y + r), path.lineTo(x + way * r, y);
  } else if (mark === "d") {
    path.moveTo(x, y - r), path.lineTo(x + r, y), path.lineTo(x, y + r), path.lineTo(x - r, y);
  } else if (mark === "s") {
    path.rect(x - r * 0.85, y - r * 0.85, r * 1.7, r * 1.7);
  } else if (mark === "!") {
    path.rect(x - r * 0.3, y - r, r * 0.6, r * 1.2);
    path.rect(x - r * 0.3, y + r * 0.5, r * 0.6, r * 0.5);
  } else {
    path.arc(x, y, r * 0.85, 0, 2 * Math.PI);
  }
  if (filled) path.closePath();
  context.lineJoin = "round";
  context.strokeStyle = ground;
  context.lineWidth = filled ? 2 : 4.5;
  context.stroke(path);
  context.strokeStyle = context.fillStyle = paint;
  context.lineWidth = size > 6 ? 2 : 1.25;
  if (filled) context.fill(path);
  else context.stroke(path);
}

/** A small picture of a mark, for legends and tables. */
function markPicture(kind) {
  const canvas = el("canvas", { class: "glyph", "aria-hidden": "true" });
  drawn(() => {
    const context = sharp(canvas, 14, 14);
    context.clearRect(0, 0, 14, 14);
    drawMark(context, kind.mark, 7, 7, 9, given(kind), "transparent");
  });
  return canvas;
}
