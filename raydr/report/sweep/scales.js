// @ts-check
"use strict";
// Functions of a sweep's charts that need no page: number formats, scales, shortened texts and Pareto fronts.

const NARROW = "\u202f";
const minus = (text) => text.replace("-", "−");
const digits = (value, n) => minus(String(Number(value.toPrecision(n))));
const size = (value) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < 4) { value /= 1000; unit += 1; }
  return `${digits(value, 3)}${NARROW}${units[unit]}`;
};

// Shorten in the middle: names of one key often begin alike and end differently.
const inTheMiddle = (text, most) => (text.length > most ? `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}` : text);
const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

const wrapped = (text, most, lines) => {
  const found = [];
  for (const word of text.split(" ")) {
    const longer = found.length ? `${found.at(-1)} ${word}` : word;
    if (found.length && (longer.length <= most || found.length === lines)) found[found.length - 1] = longer;
    else found.push(word);
  }
  return found;
};

// Scales that map values to [0, 1], with round ticks.
const steps = (low, high, wanted) => {
  const raw = (high - low || Math.abs(high) || 1) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5].find((m) => m * power >= raw * 0.999) ?? 10);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(Number((k * step).toPrecision(12)));
  return found;
};
const scale = (low, high, log, wanted) => {
  if (log) {
    const [from, to] = [Math.log10(low), Math.log10(high)];
    const every = Math.max(1, Math.ceil((to - from) / wanted));
    const ticks = [];
    for (let k = Math.ceil(from - 1e-9); k <= to + 1e-9; k += every) ticks.push(10 ** k);
    if (ticks.length < 2) { // with fewer than two powers of ten, add multiples of 2 and 5
      ticks.length = 0;
      for (let k = Math.floor(from); k <= to; k += 1) for (const m of [1, 2, 5]) if (m * 10 ** k >= low * 0.999 && m * 10 ** k <= high * 1.001) ticks.push(m * 10 ** k);
    }
    return { of: (value) => (to > from ? (Math.log10(value) - from) / (to - from) : 0.5), ticks };
  }
  return { of: (value) => (high > low ? (value - low) / (high - low) : 0.5), ticks: high > low ? steps(low, high, wanted) : [low] };
};
const bounds = (values) => {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) if (value != null) { low = Math.min(low, value); high = Math.max(high, value); }
  return [low, high];
};

// Pareto front: points that no other point beats (as good in both, better in one). Sort by the first measure and keep
// the best so far in the second.
const frontOf = (some, x, y) => {
  const cost = (axis, place) => (axis.better === "max" ? -axis.values[place] : axis.values[place]);
  const order = [...some].sort((a, b) => cost(x, a) - cost(x, b) || cost(y, a) - cost(y, b));
  const found = [];
  let [best, equal] = [Infinity, null];
  for (const place of order) {
    const [cx, cy] = [cost(x, place), cost(y, place)];
    if (cy < best) { found.push(place); best = cy; equal = cx; } else if (cy === best && cx === equal) found.push(place);
  }
  return found;
};
