// @ts-check
// Draw points into the pixels of a canvas. On two cores without a graphics card, a million points take 30 to 60 ms,
// compared with half a second or more for WebGL, which the CPU must emulate.

const rgb = (colour) => {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return blue << 16 | green << 8 | red; // byte order of a canvas
};

// The given number of colours along a ramp of stops, ends included.
const rampOf = (stops, steps) => Uint32Array.from({ length: steps }, (_, step) => {
  const along = (stops.length - 1) * step / Math.max(1, steps - 1);
  const before = Math.min(stops.length - 2, Math.floor(along)), part = along - before;
  const [from, to] = [rgb(stops[before]), rgb(stops[before + 1])];
  const mix = (shift) => Math.round((from >> shift & 255) * (1 - part) + (to >> shift & 255) * part) << shift;
  return mix(16) | mix(8) | mix(0);
});

// A dot: offsets of its pixels from its centre, and the coverage of each, of 256.
const dots = new Map();
const dotOf = (diameter, width) => {
  const key = `${diameter.toFixed(1)} ${width}`;
  if (dots.has(key)) return dots.get(key);
  const radius = diameter / 2, reach = Math.ceil(radius - 0.5), offsets = [], covers = [];
  for (let y = -reach; y <= reach; y++) {
    for (let x = -reach; x <= reach; x++) {
      const cover = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(x, y)));
      if (cover > 0.02) { offsets.push(y * width + x); covers.push(cover); }
    }
  }
  const dot = { reach, offsets: Int32Array.from(offsets), covers: Float32Array.from(covers) };
  if (dots.size > 50) dots.clear();
  dots.set(key, dot);
  return dot;
};

// Blend rows into pixels (uint32, opaque). With `chosen`, draw only rows whose selection equals `which`.
/** @type {(pixels: Uint32Array, width: number, height: number, at: Record<"left" | "top" | "scale", number>, drawn: DrawnRows) => void} */
const drawRows = (pixels, width, height, at, { x, y, codes, colours, diameter, alpha, chosen, which, rows }) => {
  const square = diameter <= 2.4; // 2 by 2 pixels
  const dot = square ? null : dotOf(diameter, width);
  const reach = square ? 1 : dot.reach;
  const right = width - reach - 1, bottom = height - reach - 1;
  const strengths = square ? [] : Array.from(dot.covers, (cover) => Math.round(256 * alpha * cover));
  const whole = Math.round(256 * alpha);
  const { left, top, scale } = at;
  for (let i = 0; i < rows; i++) {
    if (chosen && chosen[i] !== which) continue;
    const px = left + x[i] * scale, py = top - y[i] * scale;
    if (!(px >= reach && py >= reach && px <= right && py <= bottom)) continue;
    const colour = colours[codes[i]], redBlue = colour & 0xff00ff, green = colour >> 8 & 255;
    const middle = (py | 0) * width + (px | 0);
    if (square) {
      const rest = 256 - whole, ownRB = Math.imul(redBlue, whole), ownG = Math.imul(green, whole);
      for (let k = 0; k < 4; k++) {
        const place = middle + (k & 1) + (k >> 1) * width, under = pixels[place];
        pixels[place] = 0xff000000 | (ownRB + Math.imul(under & 0xff00ff, rest)) >>> 8 & 0xff00ff
          | (ownG + Math.imul(under >>> 8 & 255, rest)) & 0xff00;
      }
      continue;
    }
    const { offsets } = dot;
    for (let k = 0; k < offsets.length; k++) {
      const strength = strengths[k], rest = 256 - strength, place = middle + offsets[k], under = pixels[place];
      pixels[place] = 0xff000000 | (Math.imul(redBlue, strength) + Math.imul(under & 0xff00ff, rest)) >>> 8 & 0xff00ff
        | (Math.imul(green, strength) + Math.imul(under >>> 8 & 255, rest)) & 0xff00;
    }
  }
};
