// The cells of the map: a byte for each machine and bin, their colours and their words.

const TILE = 8192;
const FIRST_SHARE = 16;
const shareOf = (cell) => (cell - FIRST_SHARE) / (255 - FIRST_SHARE);
let largestCell = FIRST_SHARE;
const seenStates = new Set();

/** The cells of all runs, and the largest share, which has the darkest shade. */
function unpackCells() {
  for (const run of RUNS) {
    run.cells = bytesOf(run.map.cells);
    for (const cell of run.cells) {
      if (cell > largestCell) largestCell = cell;
      if (cell < FIRST_SHARE) seenStates.add(cell);
    }
  }
}

/** Colours of the 256 values that a cell can have, as pixels. */
function cellColours() {
  const canvas = el("canvas", { width: 256, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const shades = context.createLinearGradient(FIRST_SHARE, 0, Math.max(largestCell, FIRST_SHARE + 1), 0);
  shades.addColorStop(0, colour("load-none"));
  shades.addColorStop(1, colour("load-all"));
  context.fillStyle = shades;
  context.fillRect(0, 0, 256, 1);
  DATA.states.forEach((state, i) => {
    context.fillStyle = given(state);
    context.fillRect(i, 0, 1, 1);
  });
  return new Uint32Array(context.getImageData(0, 0, 256, 1).data.buffer);
}

/** The cells as pictures of one pixel each, so wide as browsers allow. */
function paintCells(run, cells) {
  const paint = cellColours();
  const tiles = [];
  for (let begin = 0; begin < run.map.bins; begin += TILE) {
    const width = Math.min(TILE, run.map.bins - begin);
    const canvas = el("canvas", { width, height: run.map.rows });
    const context = canvas.getContext("2d");
    const picture = context.createImageData(width, run.map.rows);
    const pixels = new Uint32Array(picture.data.buffer);
    for (let row = 0, at = 0; row < run.map.rows; row++) {
      const from = row * run.map.bins + begin;
      for (let i = 0; i < width; i++) pixels[at++] = paint[cells[from + i]];
    }
    context.putImageData(picture, 0, 0);
    tiles.push({ begin, width, canvas, pixels });
  }
  return tiles;
}

function machineName(run, machine) {
  const host = run.names[machine - 1];
  return host ? `machine ${machine} (${host})` : `machine ${machine}`;
}

/** What a cell of the map says, in words. */
function cellWords(run, value) {
  if (value >= FIRST_SHARE) {
    return `${UNITS.percent(shareOf(value))} of its shard's rows`;
  }
  return DATA.states[value]?.words ?? "nothing known";
}

function stepWords(run, bin) {
  const [first, last] = stepsOf(run, bin);
  return first === last ? `Step ${whole(first)}` : `Steps ${whole(first)}–${whole(last)}`;
}

/**
 * Cells that share a pixel are mixed along the steps, and never with those of other machines, as the
 * smoothing of a browser does.
 */
function mix(tile, from, to, wide) {
  const across = Math.max(1, Math.round(wide));
  const key = `${from} ${to} ${across}`;
  if (tile.mixed?.key === key) return [tile.mixed.canvas, 0, across];
  const rows = tile.canvas.height;
  const canvas = el("canvas", { width: across, height: rows });
  const context = canvas.getContext("2d");
  const picture = context.createImageData(across, rows);
  const edges = Array.from({ length: across + 1 }, (_, i) => from + Math.floor((i * (to - from)) / across));
  const { data } = picture;
  for (let row = 0, at = 0; row < rows; row++) {
    const first = row * tile.width;
    for (let i = 0; i < across; i++, at += 4) {
      const end = Math.max(edges[i + 1], edges[i] + 1);
      let [red, green, blue] = [0, 0, 0];
      for (let k = edges[i]; k < end; k++) {
        const pixel = tile.pixels[first + k];
        red += pixel & 255;
        green += (pixel >> 8) & 255;
        blue += (pixel >> 16) & 255;
      }
      const count = end - edges[i];
      data[at] = red / count;
      data[at + 1] = green / count;
      data[at + 2] = blue / count;
      data[at + 3] = 255;
    }
  }
  context.putImageData(picture, 0, 0);
  tile.mixed = { key, canvas };
  return [canvas, 0, across];
}

/** Events of these steps; they are in the order of their steps. */
function eventsBetween(run, first, last) {
  run.eventSteps ??= run.events.map(([step]) => step);
  return run.events.slice(placeOf(run.eventSteps, first), placeOf(run.eventSteps, last + 1));
}
