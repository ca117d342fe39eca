// The scripts of pages that compute without a page. test_page_scripts.py runs this, with what Python packed and spelt.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";

const { report, packed, spelt } = JSON.parse(readFileSync(process.env.CASES, "utf8"));
const read = (file) => readFileSync(join(report, file), "utf8");

// What scripts define, by name, as they stand one after the other in a page.
const load = (files, names, document = null) =>
  new Function("document", `${files.map(read).join("\n")}\nreturn { ${names} };`)(document);

const parts = []; // of the page
const page = { getElementById: (id) => ({ textContent: parts[Number(id.slice("part-".length))] }) };
const columns = load(["map/columns.js"], "byPlace, drawingOrder, drawnPlaces, inOrder, readAxis, readColumn, readIds", page);
const part = (text) => parts.push(text) - 1;

let state = 7;
const chance = () => { state = (Math.imul(state, 1664525) + 1013904223) >>> 0; return state / 2 ** 32; };

test("every script can be read", () => {
  for (const files of packed.scripts) new Function(files.map(read).join("\n"));
});

test("rows are drawn in an order that has each of them once, and leads back", () => {
  for (const rows of [1, 2, 3, 10, 997, 1000]) {
    const order = columns.drawingOrder(rows);
    assert.deepEqual([...order].sort((a, b) => a - b), [...Array(rows).keys()]);
    const drawn = columns.drawnPlaces(order);
    order.forEach((row, i) => assert.equal(drawn[row], i));
  }
});

test("columns come back as Python packed them", async () => {
  for (const { width, codes, text } of packed.codes) {
    const order = columns.drawingOrder(codes.length);
    const levels = Object.fromEntries(codes.map((code) => [code, code === codes[1] ? null : code + 0.5]));
    const column = await columns.readColumn({ part: part(text), bytes: width, levels }, codes.length, order);
    order.forEach((row, i) => assert.equal(column.value(i), codes[row] === codes[1] ? NaN : codes[row] + 0.5));
  }
  const { values, text } = packed.numbers;
  const order = columns.drawingOrder(values.length);
  const column = await columns.readColumn({ part: part(text) }, values.length, order);
  order.forEach((row, i) => {
    assert.ok(Object.is(column.value(i), values[row] === null ? NaN : Math.fround(values[row])));
    assert.equal(column.text(i) === "–", values[row] === null);
  });
});

test("names of rows come back, and lead to their row", async () => {
  for (const { told, text, ids } of packed.ids) {
    const order = columns.drawingOrder(ids.length), drawn = columns.drawnPlaces(order);
    const { id, find } = await columns.readIds(text === null ? told : { ...told, part: part(text) }, ids.length, order, drawn);
    order.forEach((row, i) => {
      assert.equal(id(i), ids[row]);
      assert.equal(find(String(ids[row])), i);
    });
    assert.equal(find("of nobody"), -1);
  }
});

test("places come back within what they were rounded to", async () => {
  const { along, order: coded, rounded } = packed.places;
  const order = columns.drawingOrder(along.length);
  for (const { bits, text } of rounded) {
    const places = await columns.readAxis(part(text), bits, along.length, order, coded);
    order.forEach((row, i) => {
      const cell = Math.floor(along[row] * 2 ** bits);
      assert.equal(Math.floor(places[i] * 2 ** bits), cell, `${along[row]} in ${bits} bits is ${places[i]}`);
    });
  }
});

test("rows are sorted along the map as Python sorts them", () => {
  const { x, y, order } = packed.morton;
  assert.deepEqual([...columns.byPlace([x, y], Uint32Array.from(x.keys()))], order);
});

test("rows at one place are counted", () => {
  const { rowsAt } = load(["map/lookup.js"], "rowsAt");
  const [x, y] = [Float32Array.of(1, 2, 1, 1, NaN), Float32Array.of(3, 3, 3, 4, 3)];
  assert.deepEqual([0, 1, 2, 3].map((row) => rowsAt(x, y, row, 5)), [2, 1, 2, 1]);
});

test("rows are found as by looking at each", () => {
  const { gridOf, nearestRow, markInside, densestPlaces } = load(["map/lookup.js"], "gridOf, nearestRow, markInside, densestPlaces");
  for (const rows of [1, 5, 400]) {
    const [x, y] = [0, 1].map(() => Float32Array.from({ length: rows }, () => chance()));
    x[rows >> 1] = NaN; // not on this map
    const grid = gridOf(x, y, rows);
    for (let tried = 0; tried < 100; tried++) {
      const [px, py, reach] = [chance() * 1.4 - 0.2, chance() * 1.4 - 0.2, chance() / 4];
      const away = (i) => (x[i] - px) ** 2 + (y[i] - py) ** 2;
      const near = [...x.keys()].filter((i) => away(i) <= reach * reach).sort((a, b) => away(a) - away(b));
      assert.equal(nearestRow(grid, x, y, px, py, reach), near[0] ?? -1);

      const line = Array.from({ length: 3 + tried % 9 }, () => [chance(), chance()]);
      const inside = (i) => line.filter(([fx, fy], k) => {
        const [tx, ty] = line[(k + 1) % line.length];
        return fy > y[i] !== ty > y[i] && x[i] < fx + (y[i] - fy) / (ty - fy) * (tx - fx);
      }).length % 2 === 1;
      const marks = new Uint8Array(rows);
      const more = markInside(line, x, y, rows, marks);
      assert.deepEqual([...marks.keys()].filter((i) => marks[i]), [...x.keys()].filter(inside));
      assert.equal(more, marks.reduce((sum, mark) => sum + mark, 0));
      assert.equal(markInside(line, x, y, rows, marks), 0);
    }
  }
  // 90 rows in a corner and 10 anywhere: a name stands in the corner, and nowhere if no row has it.
  const x = Float32Array.from({ length: 100 }, (_, i) => (i < 90 ? 0.2 + chance() / 50 : chance()));
  const [place, none] = densestPlaces(new Uint8Array(100), 2, x, x, 100);
  assert.ok(Math.abs(place[0] - 0.21) < 0.02 && Math.abs(place[1] - 0.21) < 0.02);
  assert.equal(none, null);
});

test("points cover what is under them, and nothing beside the canvas", () => {
  const { rgb, rampOf, drawRows } = load(["map/raster.js"], "rgb, rampOf, drawRows");
  for (const { stops, colours } of spelt.ramps) {
    const ramp = rampOf(stops, colours.length);
    colours.forEach((colour, k) => {
      for (const shift of [0, 8, 16]) assert.ok(Math.abs((ramp[k] >> shift & 255) - (rgb(colour) >> shift & 255)) <= 1);
    });
  }
  const [width, height, white] = [40, 30, 0xffffffff];
  for (const diameter of [2, 3, 9]) {
    const pixels = new Uint32Array(width * height).fill(white);
    const drawn = (rows, more = {}) => drawRows(pixels, width, height, { left: 0, top: height, scale: 30 }, {
      x: [0.5, 0.001, 0.99, -3, 7], y: [0.5, 0.001, 0.999, 0.5, 0.5], codes: [0, 0, 0, 0, 0], colours: [rgb("#18783c")], diameter, alpha: 1, rows, ...more,
    });
    drawn(5, { chosen: [0, 0, 0, 0, 0], which: 1 });
    assert.ok(pixels.every((pixel) => pixel === white));
    drawn(5);
    assert.equal(pixels[15 * width + 15], 0xff3c7818);
    assert.ok(pixels.every((pixel) => pixel >>> 24 === 255));
    assert.ok(pixels.filter((pixel) => pixel !== white).length <= 3 * (diameter + 2) ** 2);
  }
});

test("cells of a CSV file are what Python writes", () => {
  const { unevaluated, csvOf } = load(["map/table.js"], "unevaluated, csvOf");
  for (const [text, cell] of spelt.cells) assert.equal(unevaluated(text), cell);
  assert.equal(csvOf(["a", 'b "c"'], [[1, "x,y"]]), 'a,"b ""c"""\r\n1,"x,y"\r\n');
});

test("a search offers a row first, then names from their beginning", () => {
  const { offersFor } = load(["map/columns.js", "map/search.js"], "offersFor", page);
  const names = ["north", "northern", "far north", "south"];
  const atlas = {
    header: { rows: 4 }, ids: { find: (name) => (name === "7" ? 2 : -1) }, tallyOf: () => [1, 2, 3, 4],
    columns: [{ title: "site", names }, { title: "age", value: (i) => [7, 8, 9, 10][i], text: (i) => String([7, 8, 9, 10][i]) }],
  };
  const said = (words) => offersFor(atlas, words).map((offer) => offer.text);
  assert.deepEqual(said("7"), ["row 7", "age: 7"]);
  assert.deepEqual(said(" North"), ["site: north", "site: northern", "site: far north", "site: all 3 with “North”"]);
  assert.deepEqual(said("  "), []);
});

test("charts of a sweep", async (t) => {
  const { size, steps, scale, bounds, wrapped, shorten, inTheMiddle, frontOf } =
    load(["sweep/scales.js"], "size, steps, scale, bounds, wrapped, shorten, inTheMiddle, frontOf");
  await t.test("round numbers of bytes are spelt as in Python", () => {
    for (const [value, text] of spelt.sizes) assert.equal(size(value), text);
  });
  await t.test("ticks are round, in order, within, and neither few nor many", () => {
    for (let tried = 0; tried < 300; tried++) {
      const low = (chance() - 0.5) * 10 ** (chance() * 12 - 6), high = low + Math.abs(low) * chance() + 10 ** (chance() * 8 - 6);
      const wanted = 3 + tried % 4, ticks = steps(low, high, wanted), slack = 1e-6 * (high - low);
      assert.ok(ticks.length >= 1 && ticks.length <= wanted + 1, `${low} to ${high}: ${ticks}`);
      assert.ok(ticks.every((tick, k) => tick >= low - slack && tick <= high + slack && (!k || tick > ticks[k - 1])));
    }
  });
  await t.test("scales begin at 0, end at 1 and rise between", () => {
    for (const log of [false, true]) for (const [low, high] of [[0.001, 3], [2, 2.5], [1, 1e9]]) {
      const { of, ticks } = scale(low, high, log, 5);
      assert.deepEqual([of(low), of(high)], [0, 1]);
      assert.ok(ticks.length && ticks.every((tick) => of(tick) >= -0.01 && of(tick) <= 1.01));
      assert.ok(of((low + high) / 2) > 0 && of((low + high) / 2) < 1);
    }
    assert.equal(scale(4, 4, false, 5).of(4), 0.5);
    assert.deepEqual(bounds([null, 3, undefined, -1]), [-1, 3]);
  });
  await t.test("texts are cut to fit, and lose no word where they are wrapped", () => {
    const text = "Left per record, unprotected";
    for (let most = 2; most < 40; most++) {
      for (const cut of [shorten(text, most), inTheMiddle(text, most)]) assert.ok(cut.length <= most && (cut === text) === (most >= text.length));
      assert.equal(wrapped(text, most, 3).join(" "), text);
      assert.ok(wrapped(text, most, 3).length <= 3);
    }
  });
  await t.test("a front holds the points that no other one beats", () => {
    for (let tried = 0; tried < 50; tried++) {
      const [x, y] = ["min", "max"].map((better) => ({ better, values: Array.from({ length: 30 }, () => Math.floor(chance() * 8)) }));
      const all = [...x.values.keys()];
      const beats = (a, b) => x.values[a] <= x.values[b] && y.values[a] >= y.values[b] && (x.values[a] < x.values[b] || y.values[a] > y.values[b]);
      assert.deepEqual(frontOf(all, x, y).sort((a, b) => a - b), all.filter((b) => !all.some((a) => beats(a, b))));
    }
  });
});

const turning = load(["map/turning.js"], "diskOfBall, facing, turnedAxes, turnedBy");
const near = (found, expected, what) => assert.ok(Math.abs(found - expected) < 1e-6, `${what}: ${found}, not ${expected}`);

test("a map that is turned stays rigid, and inside its cube", () => {
  const axes = [0, 1, 2].map(() => Float32Array.from({ length: 50 }, () => (chance() < 0.5 ? Math.round(chance()) : chance())));
  axes[2][7] = NaN;
  let turned = turning.facing([0, 2]);
  for (let step = 0; step < 20; step++) {
    turned = turning.turnedBy(turned, 6 * chance() - 3, 6 * chance() - 3);
    for (const [k, one] of turned.entries()) {
      for (const [l, other] of turned.entries()) near(one.reduce((sum, value, at) => sum + value * other[at], 0), Number(k === l), "product");
    }
    const [x, y] = turning.turnedAxes(axes, turned), z = turning.turnedAxes(axes, [turned[2], turned[0]])[0];
    assert.ok(Number.isNaN(x[7]) && Number.isNaN(y[7]), "a row that is on no map stays away");
    for (let i = 1; i < x.length; i++) {
      if (i === 7) continue;
      assert.ok(x[i] >= 0 && x[i] <= 1 && y[i] >= 0 && y[i] <= 1);
      const before = Math.hypot(...axes.map((axis) => axis[i] - axis[0]));
      near(Math.sqrt(3) * Math.hypot(x[i] - x[0], y[i] - y[0], z[i] - z[0]), before, "distance");
    }
  }
});

test("a drag moves what is near the reader with the pointer, and a face shows its axes", () => {
  const point = (x, y, z) => [x, y, z].map((place) => Float32Array.of(place));
  const [x, y] = turning.turnedAxes(point(0.5, 0.5, 1), turning.turnedBy(turning.facing([0, 1]), 0.3, 0));
  assert.ok(x[0] > 0.5 && Math.abs(y[0] - 0.5) < 1e-6, "to the right");
  assert.ok(turning.turnedAxes(point(0.5, 0.5, 1), turning.turnedBy(turning.facing([0, 1]), 0, 0.3))[1][0] < 0.5, "down");
  const [a, b] = turning.turnedAxes(point(0.1, 0.9, 0.7), turning.facing([1, 2]));
  near(a[0], 0.5 + 0.4 / Math.sqrt(3), "second axis");
  near(b[0], 0.5 + 0.2 / Math.sqrt(3), "third axis");
  assert.equal(turning.diskOfBall(null), null);
  near(turning.diskOfBall({ middle: 0.5, radius: 0.45 }).radius, 0.45 / Math.sqrt(3), "ball");
});
