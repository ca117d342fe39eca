// @ts-check
// Find rows by position: the nearest one with a grid, those inside a line by counting crossings.

const gridOf = (x, y, rows) => {
  const side = Math.max(1, Math.min(512, Math.round(Math.sqrt(rows / 2))));
  const cell = (i) => Math.min(side - 1, Math.floor(y[i] * side)) * side + Math.min(side - 1, Math.floor(x[i] * side));
  const starts = new Uint32Array(side * side + 1);
  const there = (i) => x[i] >= 0; // false if the row is not on this map
  for (let i = 0; i < rows; i++) if (there(i)) starts[cell(i) + 1]++;
  for (let c = 0; c < side * side; c++) starts[c + 1] += starts[c];
  const next = starts.slice(), members = new Uint32Array(starts[side * side]);
  for (let i = 0; i < rows; i++) if (there(i)) members[next[cell(i)]++] = i;
  return { side, starts, members };
};

// Number of rows at the place of a row, with itself.
const rowsAt = (x, y, row, rows) => {
  let count = 0;
  for (let i = 0; i < rows; i++) if (x[i] === x[row] && y[i] === y[row]) count++;
  return count;
};

// The row nearest to a position, at most `reach` away, or -1.
const nearestRow = ({ side, starts, members }, x, y, px, py, reach) => {
  const clamp = (value) => Math.max(0, Math.min(side - 1, Math.floor(value * side)));
  let best = -1, least = reach * reach;
  for (let row = clamp(py - reach); row <= clamp(py + reach); row++) {
    const from = starts[row * side + clamp(px - reach)], to = starts[row * side + clamp(px + reach) + 1];
    for (let k = from; k < to; k++) {
      const i = members[k], away = (x[i] - px) ** 2 + (y[i] - py) ** 2;
      if (away <= least) { least = away; best = i; }
    }
  }
  return best;
};

// Mark the rows inside a closed line [[x, y], ...] in `marks`; return the number of newly marked rows.
const BANDS = 256;
const markInside = (line, x, y, rows, marks) => {
  const xs = line.map((place) => place[0]), ys = line.map((place) => place[1]);
  const [low, high, left, right] = [Math.min(...ys), Math.max(...ys), Math.min(...xs), Math.max(...xs)];
  if (!(high > low)) return 0;
  // In each horizontal band, check only the edges that touch it.
  const band = (value) => Math.max(0, Math.min(BANDS - 1, Math.floor((value - low) / (high - low) * BANDS)));
  /** @type {number[][]} */
  const edges = Array.from({ length: BANDS }, () => []);
  line.forEach((from, k) => {
    const to = line[(k + 1) % line.length];
    if (from[1] === to[1]) return;
    const slope = (to[0] - from[0]) / (to[1] - from[1]);
    const ends = [Math.min(from[1], to[1]), Math.max(from[1], to[1])];
    for (let b = band(ends[0]); b <= band(ends[1]); b++) edges[b].push(ends[0], ends[1], from[0] - slope * from[1], slope);
  });
  let more = 0;
  for (let i = 0; i < rows; i++) {
    const px = x[i], py = y[i];
    if (!(px >= left && px <= right && py >= low && py <= high) || marks[i]) continue;
    const touched = edges[band(py)];
    let inside = false;
    for (let k = 0; k < touched.length; k += 4) {
      if (py >= touched[k] && py < touched[k + 1] && px < touched[k + 2] + touched[k + 3] * py) inside = !inside;
    }
    if (inside) { marks[i] = 1; more++; }
  }
  return more;
};

// Label positions: the densest part of each code as [x, y], or null if no row has it. For many rows the first ones
// are enough, since drawing order is random.
const densestPlaces = (codes, codeCount, x, y, all) => {
  const rows = Math.min(all, 100000);
  const side = 48, cells = new Map(), best = Array(codeCount).fill(null);
  for (let i = 0; i < rows; i++) {
    if (!(x[i] >= 0)) continue;
    const key = (codes[i] * side + Math.floor(y[i] * side)) * side + Math.floor(x[i] * side);
    const cell = cells.get(key);
    if (cell) { cell[0]++; cell[1] += x[i]; cell[2] += y[i]; } else cells.set(key, [1, x[i], y[i]]);
  }
  for (const [key, cell] of cells) {
    const code = Math.floor(key / (side * side));
    // Neighbouring cells count too: this finds the middle of a cloud, not its densest spot.
    let [rowsNear, sumX, sumY] = [0, 0, 0];
    for (let dy = -1; dy <= 1; dy++) {
      for (let dx = -1; dx <= 1; dx++) {
        const near = cells.get(key + dy * side + dx);
        if (near) { rowsNear += near[0]; sumX += near[1]; sumY += near[2]; }
      }
    }
    if (!best[code] || rowsNear > best[code].rows) best[code] = { rows: rowsNear, x: sumX / rowsNear, y: sumY / rowsNear };
  }
  return best.map((found) => found && [found.x, found.y]);
};
