// @ts-check
// Turn maps of three dimensions. A rotation is three rows of three numbers: the directions to the right, up and towards
// the reader. Coordinates are in a cube of side 1; turned ones are scaled so that they stay in it.

const TURNED_ZOOM = 1.5; // of a whole map: the corners of the cube may leave the pane
const CUBE = Math.sqrt(3); // diagonal of the cube, by its side

/** @type {(pair: number[]) => number[][]} */
const facing = ([right, up]) => [right, up, 3 - right - up].map((axis) => [0, 1, 2].map((k) => Number(k === axis)));

// Points near the reader follow the pointer.
/** @type {(from: number[][], across: number, down: number) => number[][]} */
const turnedBy = ([right, up, near], across, down) => {
  /** @type {(one: number[], other: number[], angle: number) => number[]} */
  const mixed = (one, other, angle) => one.map((value, k) => value * Math.cos(angle) + other[k] * Math.sin(angle));
  const turned = mixed(near, right, -across);
  return [mixed(right, near, across), mixed(up, turned, -down), mixed(turned, up, down)];
};

/** @type {(axes: Float32Array[], turned: number[][]) => Float32Array[]} */
const turnedAxes = ([x, y, z], turned) => turned.slice(0, 2).map(([a, b, c]) => {
  const along = new Float32Array(x.length), middle = 0.5 - (a + b + c) / 2 / CUBE;
  for (let i = 0; i < along.length; i++) along[i] = middle + (a * x[i] + b * y[i] + c * z[i]) / CUBE;
  return along;
});

/** @type {(disk: PanelEntry["disk"]) => PanelEntry["disk"]} */
const diskOfBall = (disk) => disk && { middle: 0.5 + (disk.middle - 0.5) / CUBE, radius: disk.radius / CUBE };
