// Types of the scripts of pages: the data that Python writes into a page, and the state of its maps. `tsc --project
// raydr/report` checks the scripts against them. No page contains this file.

/** Whole numbers of rows: places in a list of names or levels. */
type Codes = Uint8Array | Uint16Array | Uint32Array;

// --- data of the maps, written by map/atlas.py ------------------------------------------------------------------------

interface MapHeader {
  name: string;
  rows: number;
  /** Of a coordinate. */
  bits: number;
  /** Index of the column by which the first map's coordinates are sorted. */
  sorted: number | null;
  ramp: string[];
  grey: string;
  boundary: string;
  size: number;
  alpha: number;
  panels: PanelEntry[];
  ids: IdsEntry;
  columns: ColumnEntry[];
  ways: Way[];
}

/** A map: the parts of the page with its coordinates, and with a 0 for each row that is not on it. */
interface PanelEntry {
  key: string;
  title: string;
  axes: number[];
  there: number | null;
  kept: number | null;
  disk: { middle: number; radius: number } | null;
}

/** Names of rows: a range from `first`, differences, or texts. */
interface IdsEntry {
  kind: "range" | "none" | "steps" | "names";
  first?: number;
  part: number;
}

/** A column: codes of `bytes` bytes for its `names` or `levels`, or else float32. `share`: shown in per cent. */
interface ColumnEntry {
  title: string;
  part: number;
  names?: string[];
  levels?: (number | null)[];
  bytes: 1 | 2 | 4;
  share?: boolean;
}

/** A way to colour the maps: the index of a column for each map, and the colours of names or the ends of a ramp. */
interface Way {
  by: string;
  kind: "categories" | "order" | "values" | "scale";
  columns: [number, ...(number | null)[]];
  colours: string[];
  last: string;
  low: number;
  high: number;
  ticks?: [number, number][];
}

// --- state of the maps ------------------------------------------------------------------------------------------------

/** A column in drawing order. */
interface Column extends ColumnEntry {
  codes: Codes;
  text(row: number): string;
  value(row: number): any;
  rank(row: number): number;
}

/** A column of names, with the rows of each name. */
interface NamedColumn extends Column {
  names: string[];
  tally?: Uint32Array;
}

interface RowIds {
  id(row: number): number | string;
  find(name: string): number;
}

/** The middle of the view in [0, 1], and its zoom. */
interface View {
  x: number;
  y: number;
  zoom: number;
}

interface Atlas {
  root: HTMLElement;
  header: MapHeader;
  /** Table row of each drawn row, and the inverse. */
  order: Uint32Array;
  drawn: Uint32Array;
  panels: Panel[];
  columns: Column[];
  reading: Promise<void>[];
  /** Once it is read. */
  ids: RowIds;
  table?: RowTable;
  view: View;
  /** Whether the view is that of all rows. */
  home: boolean;
  /** The axes shown. */
  pair: [number, number];
  /** The rotation of turned maps of three dimensions: see turning.js. */
  turned: number[][] | null;
  mode: Stroke["kind"];
  hovered: number;
  /** 1 for each selected row, in drawing order. */
  chosen: Uint8Array | null;
  chosenCount: number;
  way?: Way;
  naming: boolean | null;
  lookups: Map<string, Shades>;
  along?: Uint32Array;
  ground: number;
  inked: string;
  printing?: boolean;
  quick?: boolean;
  resting?: number;
  asked?: number;
  find(selector: string): any;
}

type Gesture = Stroke | { kind: "pinch"; line?: undefined; turned?: undefined };

/** A drag with one pointer: a line around rows, or a moved view. */
interface Stroke {
  kind: "select" | "move" | "turn" | "";
  from: Place;
  view: View;
  adds: boolean;
  moved?: boolean;
  line?: [number, number][];
  /** The rotation at the start of a drag that turns. */
  turned?: number[][];
}

/** A position in pixels of a map, and on its axes. */
interface Place {
  px: number;
  py: number;
  x: number;
  y: number;
}

interface Panel {
  atlas: Atlas;
  entry: PanelEntry;
  root: HTMLElement;
  /** Null until it is loaded: see `ready`. */
  axes: Float32Array[];
  loading?: Promise<Float32Array[]>;
  width: number;
  height: number;
  ratio: number;
  drawn?: boolean;
  pixels: Uint32Array;
  image: ImageData;
  pointers: Map<number, PointerEvent>;
  gesture: Gesture | null;
  /** What was computed for a pair of axes, by its name: extents, places of names, a grid. */
  places: Map<string, any>;
  sizes: [number, number][];
  named?: string;
}

/** A code for each row, and a colour for each code. */
interface Shades {
  codes: ArrayLike<number>;
  colours: ArrayLike<number>;
}

/** Rows to draw: with `chosen`, those whose mark equals `which`. */
interface DrawnRows extends Shades {
  x: ArrayLike<number>;
  y: ArrayLike<number>;
  rows: number;
  diameter: number;
  alpha: number;
  chosen?: ArrayLike<number> | null;
  which?: number;
}

interface RowTable {
  atlas: Atlas;
  root: HTMLElement;
  given: Uint32Array;
  rows: Uint32Array;
  by: number;
  down: boolean;
  shown: number;
}

// --- data of a sweep, written by sweep/page.py ------------------------------------------------------------------------

interface SweepData {
  points: { point: number; done: number; lost: number; runs: [number, string][] }[];
  axes: SweepAxis[];
  /** Indices of the axes that are shown first. */
  wanted: number[];
  courses: { title: string; arrow: string; shared: boolean; bands: Band[] }[];
  ramp: string[];
  colours: string[];
  grey: string;
}

/** A swept key or a measure; `values` of a category are indices of `categories`. */
interface SweepAxis {
  name: string;
  title: string;
  kind: "number" | "category";
  unit: string;
  swept: boolean;
  better: "min" | "max" | null;
  log: boolean;
  absent: string;
  categories: string[];
  values: (number | null)[];
  deviations: (number | null)[];
}

/** Means and standard deviations of a point by round. */
interface Band {
  place: number;
  rounds: number[];
  means: number[];
  deviations: (number | null)[];
}

/** A tick or a name on an axis: its position from 0 to 1, and half of the length that it takes. */
interface Tick {
  at: number;
  half: number;
  text: string;
  absent?: boolean;
  name?: boolean;
}
