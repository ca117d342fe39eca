// @ts-check
// Read the columns and coordinates of the page. In memory, rows are in drawing order: a stride through the table that
// mixes sites and classes, so that none hides the others.

const count = new Intl.NumberFormat("en-US");

// Decode the text of a part, seven bits per character (packing.py).
const bytesOf = (text) => {
  const bytes = new Uint8Array(Math.floor(text.length * 7 / 8));
  for (let i = 0, at = 0, held = 0, bits = 0; i < text.length; i++) {
    held = (held << 7 | text.charCodeAt(i) & 127) & 0x3fff;
    bits += 7;
    if (bits >= 8) bytes[at++] = held >> (bits -= 8);
  }
  return bytes;
};

const partBytes = (part) => bytesOf(/** @type {HTMLElement} */ (document.getElementById(`part-${part}`)).textContent);

const inflated = async (bytes) => {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

// Table position of each row, in drawing order.
const drawingOrder = (rows) => {
  const divides = (a, b) => (b ? divides(b, a % b) : a);
  let stride = Math.max(1, Math.round(rows * 0.6180339887));
  while (divides(stride, rows) !== 1) stride++;
  const order = new Uint32Array(rows);
  for (let i = 1; i < rows; i++) order[i] = (order[i - 1] + stride) % rows;
  return order;
};

// The inverse: drawing position of each table row.
const drawnPlaces = (order) => {
  const drawn = new Uint32Array(order.length);
  for (let i = 0; i < order.length; i++) drawn[order[i]] = i;
  return drawn;
};

const inOrder = (values, order) => {
  const sorted = new values.constructor(order.length);
  for (let i = 0; i < order.length; i++) sorted[i] = values[order[i]];
  return sorted;
};

// Decode integers of 1, 2 or 4 bytes, lowest bytes first.
const codesOf = (bytes, width, rows) => {
  if (width === 1) return bytes;
  const codes = width === 2 ? new Uint16Array(rows) : new Uint32Array(rows);
  for (let plane = 0; plane < width; plane++) {
    for (let i = 0, at = plane * rows; i < rows; i++, at++) codes[i] |= bytes[at] << 8 * plane;
  }
  return codes;
};

const realsOf = (bytes, rows) => {
  const whole = codesOf(bytes, 4, rows);
  return new Float32Array(whole.buffer);
};

// A column of the table: row i has value(i), shown as text(i) and sorted by rank(i).
const readColumn = async (entry, rows, order) => {
  const bytes = await inflated(partBytes(entry.part));
  if (entry.names) {
    const codes = inOrder(codesOf(bytes, entry.bytes, rows), order);
    return { ...entry, codes, text: (i) => entry.names[codes[i]], rank: (i) => codes[i], value: (i) => entry.names[codes[i]] };
  }
  const codes = entry.levels && inOrder(codesOf(bytes, entry.bytes, rows), order);
  const reals = entry.levels ? null : inOrder(realsOf(bytes, rows), order);
  const value = codes ? (i) => entry.levels[codes[i]] ?? NaN : (i) => reals[i];
  const percent = (share) => `${Number((100 * share).toFixed(1))} %`;
  const text = (i) => (Number.isNaN(value(i)) ? "–" : entry.share ? percent(value(i)) : String(Number(value(i).toPrecision(7))));
  return { ...entry, codes, text, value, rank: (i) => (Number.isNaN(value(i)) ? -Number.MAX_VALUE : value(i)) };
};

// Row names: id(i), and find(name), the row of a name or -1.
const readIds = async (entry, rows, order, drawn) => {
  if (entry.kind === "range" || entry.kind === "none") {
    const first = entry.first ?? 0;
    const find = (name) => (/^-?\d+$/.test(name) ? drawn[Number(name) - first] ?? -1 : -1);
    return { id: (i) => order[i] + first, find };
  }
  const listed = JSON.parse(new TextDecoder().decode(await inflated(partBytes(entry.part))));
  if (entry.kind === "steps") for (let i = 1; i < rows; i++) listed[i] += listed[i - 1];
  const names = listed.map(String);
  return { id: (i) => listed[order[i]], find: (name) => drawn[names.indexOf(name)] ?? -1 };
};

// Coordinates along an axis, in [0, 1]: eight deflated bits each, and further bits. A fixed pseudo-random offset within
// the rounding avoids a visible grid. The i-th coordinate belongs to table row coded[i].
const readAxis = async (part, bits, rows, order, coded) => {
  const bytes = partBytes(part);
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const coarse = await inflated(bytes.subarray(4, 4 + length));
  const fine = bytes.subarray(4 + length), extra = bits - 8, step = 1 / 2 ** bits;
  const places = new Float32Array(rows);
  let held = 0, have = 0, at = 0, chance = 12345;
  for (let i = 0; i < rows; i++) {
    while (have < extra) { held = (held << 8 | fine[at++]) & 0xffff; have += 8; }
    have -= extra;
    chance = (Math.imul(chance, 1664525) + 1013904223) >>> 0;
    const within = bits < 16 ? ((chance >>> 24) + 0.5) / 256 : 0.5; // exact in float32
    places[coded[i]] = (coarse[i] << extra | held >> have & (1 << extra) - 1) * step + within * step;
  }
  return inOrder(places, order);
};

// Sort table rows by an integer key (below about 2^16); the sort is stable.
const sortedBy = (keys) => {
  const starts = new Uint32Array(keys.reduce((most, key) => Math.max(most, key), 0) + 2), sorted = new Uint32Array(keys.length);
  for (const key of keys) starts[key + 1]++;
  for (let key = 1; key < starts.length; key++) starts[key] += starts[key - 1];
  for (let row = 0; row < keys.length; row++) sorted[starts[keys[row]]++] = row;
  return sorted;
};

// Sort rows by position along a Morton curve through 256 x 256 cells.
/** @type {(axes: Float32Array[], drawn: Uint32Array) => Uint32Array} */
const byPlace = ([x, y], drawn) => {
  const spread = Uint16Array.from({ length: 256 }, (_, cell) => {
    let bits = 0;
    for (let bit = 0; bit < 8; bit++) bits |= (cell >> bit & 1) << 2 * bit;
    return bits;
  });
  return sortedBy(Uint16Array.from(drawn, (i) => spread[x[i] * 256 | 0] | spread[y[i] * 256 | 0] << 1));
};

const readPanel = async (entry, header, order, coded) => {
  const axes = await Promise.all(entry.axes.map((part) => readAxis(part, header.bits, header.rows, order, coded)));
  if (entry.there !== null) {
    const there = inOrder(await inflated(partBytes(entry.there)), order);
    for (const axis of axes) there.forEach((is, i) => { if (!is) axis[i] = NaN; });
  }
  return axes;
};
