// @ts-check
// One map of the page: its points, labels and tooltip, and its pointer and key events. Maps share the atlas: rows,
// colours, view and selection.

const MOST_ZOOM = 64;
const MOST_HOME = 8; // largest zoom of the view of all rows
const MARGIN = 0.03; // margin around a map, relative to its extent
const QUICK_ROWS = 150000; // rows drawn while the map moves; all are drawn when it rests
const WITHIN = 14; // largest distance in pixels from the pointer to its point
const NEAR = 4; // largest movement in pixels that counts as a click

class Panel {
  constructor(atlas, entry, root) {
    Object.assign(this, { atlas, entry, root, axes: null, pointers: new Map(), gesture: null, places: new Map() });
    this.points = root.querySelector(".points");
    this.over = root.querySelector(".over");
    this.names = root.querySelector(".names");
    this.tip = root.querySelector(".tip");
    // The CPU writes the pixels, so the canvas stays in main memory.
    this.context = this.points.getContext("2d", { alpha: false, willReadFrequently: true });
    new ResizeObserver(() => this.resize()).observe(root);
    this.listen();
  }

  get x() { return this.side[0]; }
  get y() { return this.side[1]; }
  get disk() { return this.atlas.turned ? diskOfBall(this.entry.disk) : this.entry.disk; }

  // Coordinates to the right and up; of a turned map, for as long as it is turned this way.
  /** @returns {Float32Array[]} */
  get side() {
    const { turned, pair } = this.atlas;
    if (!turned) return [this.axes[pair[0]], this.axes[pair[1]]];
    if (!this.places.has("side")) this.places.set("side", turnedAxes(this.axes, turned));
    return this.places.get("side");
  }

  get ready() { return this.axes !== null && this.width > 0; }

  async load() {
    if (this.axes) return;
    this.loading ??= this.atlas.coded(this).then((coded) => readPanel(this.entry, this.atlas.header, this.atlas.order, coded));
    this.axes = await this.loading;
    this.resize();
  }

  resize() {
    this.ratio = Math.min(2, devicePixelRatio || 1);
    const width = Math.round(this.root.clientWidth * this.ratio), height = Math.round(this.root.clientHeight * this.ratio);
    if (!width || !height || (width === this.width && height === this.height && this.drawn)) return;
    Object.assign(this, { width, height });
    for (const canvas of [this.points, this.over]) { canvas.width = width; canvas.height = height; }
    this.image = this.context.createImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    if (this.atlas.home) this.atlas.fit();
    this.draw();
  }

  // Extent of the rows in x and y, with a margin; for a disk, the whole disk.
  get extent() {
    const { disk } = this, key = `extent ${this.atlas.seen}`;
    if (!this.places.has(key)) {
      const ends = [Infinity, -Infinity, Infinity, -Infinity];
      for (const [k, along] of [this.x, this.y].entries()) {
        for (let i = 0; i < along.length; i++) {
          if (along[i] < ends[2 * k]) ends[2 * k] = along[i];
          if (along[i] > ends[2 * k + 1]) ends[2 * k + 1] = along[i];
        }
      }
      const reach = disk ? disk.radius : 0, around = disk ? [disk.middle - reach, disk.middle + reach] : null;
      const margin = MARGIN * Math.max(ends[1] - ends[0], ends[3] - ends[2], 2 * reach);
      const found = around ? [...around, ...around] : ends;
      this.places.set(key, found.map((end, k) => end + (k % 2 ? margin : -margin)));
    }
    return this.places.get(key);
  }

  // Pixels of coordinates in [0, 1]: left + x * scale, top - y * scale.
  get at() {
    const { x, y, zoom } = this.atlas.view, scale = Math.min(this.width, this.height) * zoom;
    return { scale, left: this.width / 2 - x * scale, top: this.height / 2 + y * scale };
  }

  placeOf(event) {
    const box = this.points.getBoundingClientRect(), { left, top, scale } = this.at;
    const px = (event.clientX - box.left) * this.ratio, py = (event.clientY - box.top) * this.ratio;
    return { px, py, x: (px - left) / scale, y: (top - py) / scale };
  }

  draw(quick = false) {
    if (!this.ready) return;
    const { atlas, width, height } = this, { chosen, header } = atlas, at = this.at;
    const rows = quick ? Math.min(QUICK_ROWS, header.rows) : header.rows;
    const grown = Math.sqrt(Math.min(width, height) / this.ratio / 600) * atlas.view.zoom ** 0.35;
    const diameter = Math.min(18, Math.max(1.6, header.size * grown)) * this.ratio;
    const common = { ...atlas.shades(this.entry), x: this.x, y: this.y, rows, chosen };
    this.pixels.fill(atlas.ground);
    if (chosen) {
      drawRows(this.pixels, width, height, at, { ...common, which: 0, diameter, alpha: 0.1 });
      const seen = atlas.chosenCount < 2000 ? Math.max(diameter, 5 * this.ratio) : diameter;
      drawRows(this.pixels, width, height, at, { ...common, which: 1, diameter: seen, alpha: 0.95, rows: header.rows });
    } else {
      drawRows(this.pixels, width, height, at, { ...common, diameter, alpha: header.alpha });
    }
    this.context.putImageData(this.image, 0, 0);
    this.drawn = true;
    this.drawOver();
    this.placeNames();
  }

  drawOver() {
    if (!this.ready) return;
    const { atlas, disk } = this, over = this.over.getContext("2d"), { left, top, scale } = this.at;
    over.clearRect(0, 0, this.width, this.height);
    over.lineWidth = 1.5 * this.ratio;
    if (disk) {
      over.strokeStyle = atlas.header.boundary;
      over.beginPath();
      over.arc(left + disk.middle * scale, top - disk.middle * scale, disk.radius * scale, 0, 2 * Math.PI);
      over.stroke();
    }
    over.strokeStyle = atlas.inked;
    if (atlas.hovered >= 0 && this.x[atlas.hovered] >= 0) {
      over.lineWidth = 2 * this.ratio;
      over.beginPath();
      over.arc(left + this.x[atlas.hovered] * scale, top - this.y[atlas.hovered] * scale, 7 * this.ratio, 0, 2 * Math.PI);
      over.stroke();
    }
    const line = this.gesture?.line;
    if (line && line.length > 1) {
      over.setLineDash([5 * this.ratio, 4 * this.ratio]);
      over.beginPath();
      for (const [x, y] of line) over.lineTo(left + x * scale, top - y * scale);
      over.closePath();
      over.stroke();
      over.globalAlpha = 0.08;
      over.fillStyle = atlas.inked;
      over.fill();
      over.globalAlpha = 1;
      over.setLineDash([]);
    }
  }

  // Category names, each in the densest part of its rows. If two overlap, the one with fewer rows moves up or down, or
  // is hidden.
  placeNames() {
    const { atlas } = this, named = atlas.named();
    this.names.hidden = !named;
    if (!named || !this.ready) return;
    const { column, tally } = named, key = `${column.part} ${atlas.seen}`;
    if (!this.places.has(key)) this.places.set(key, densestPlaces(column.codes, column.names.length, this.x, this.y, atlas.header.rows));
    if (this.named !== key) {
      this.named = key;
      this.names.replaceChildren(...column.names.map((name) => {
        const tag = document.createElement("span");
        tag.textContent = name.length > 28 ? `${name.slice(0, 27)}…` : name;
        return tag;
      }));
      this.sizes = [...this.names.children].map((tag) => [tag.offsetWidth, tag.offsetHeight]);
    }
    const { left, top, scale } = this.at, taken = [];
    const places = this.places.get(key);
    const largest = [...column.names.keys()].sort((a, b) => tally[b] - tally[a]);
    for (const code of largest) {
      const tag = this.names.children[code], place = places[code];
      tag.hidden = true;
      if (!place) continue;
      const [wide, high] = this.sizes[code], [width, height] = [this.root.clientWidth, this.root.clientHeight];
      const middle = [(left + place[0] * scale) / this.ratio, (top - place[1] * scale) / this.ratio];
      if (middle[0] < 0 || middle[1] < 0 || middle[0] > width || middle[1] > height) continue;
      const x = Math.max(0, Math.min(width - wide, middle[0] - wide / 2));
      const free = (y) => !taken.some(([l, t, w, h]) => x < l + w && l < x + wide && y < t + h && t < y + high);
      const y = [0, -high, high].map((shift) => Math.max(0, Math.min(height - high, middle[1] - high / 2 + shift))).find(free);
      if (y === undefined) continue;
      taken.push([x, y, wide, high]);
      tag.hidden = false;
      tag.style.transform = `translate(${x}px, ${y}px)`;
    }
  }

  nearest(place) {
    const key = `grid ${this.atlas.seen}`;
    if (!this.places.has(key)) this.places.set(key, gridOf(this.x, this.y, this.atlas.header.rows));
    return nearestRow(this.places.get(key), this.x, this.y, place.x, place.y, WITHIN * this.ratio / this.at.scale);
  }

  hover(event) {
    const row = this.nearest(this.placeOf(event));
    this.atlas.hover(row);
    this.tip.hidden = row < 0;
    if (row < 0) return;
    const list = document.createElement("dl");
    const equal = rowsAt(this.x, this.y, row, this.atlas.header.rows);
    const facts = this.atlas.factsOf(row, this.entry);
    for (const [title, text] of equal > 1 ? [...facts, ["rows here", String(equal)]] : facts) {
      list.append(Object.assign(document.createElement("dt"), { textContent: title }));
      list.append(Object.assign(document.createElement("dd"), { textContent: text }));
    }
    this.tip.replaceChildren(list);
    const { left, top, scale } = this.at;
    const x = (left + this.x[row] * scale) / this.ratio, y = (top - this.y[row] * scale) / this.ratio;
    const [wide, high] = [this.tip.offsetWidth, this.tip.offsetHeight];
    const across = x + 14 + wide < this.root.clientWidth ? x + 14 : Math.max(4, x - 14 - wide);
    this.tip.style.transform = `translate(${across}px, ${Math.max(4, Math.min(this.root.clientHeight - high - 4, y - high / 2))}px)`;
  }

  away() {
    this.tip.hidden = true;
    this.atlas.hover(-1);
  }

  listen() {
    const surface = this.over;
    surface.addEventListener("pointerdown", (event) => this.press(event));
    surface.addEventListener("pointermove", (event) => this.move(event));
    surface.addEventListener("pointerup", (event) => this.release(event));
    surface.addEventListener("pointercancel", (event) => this.release(event, true));
    surface.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") this.away(); });
    surface.addEventListener("wheel", (event) => {
      // Zoom only with Ctrl held or a pinch on a touch pad, so that plain scrolling scrolls the page.
      if (!this.ready || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.atlas.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), this.placeOf(event));
    }, { passive: false });
    surface.addEventListener("dblclick", (event) => this.ready && this.atlas.zoom(2, this.placeOf(event)));
    this.root.addEventListener("keydown", (event) => this.pressKey(event));
  }

  press(event) {
    if (!this.ready || event.button > 0) return;
    this.root.focus({ preventScroll: true });
    this.pointers.set(event.pointerId, event);
    if (event.isTrusted) this.over.setPointerCapture(event.pointerId);
    if (this.pointers.size > 1) { this.gesture = { kind: "pinch" }; this.drawOver(); return; }
    const place = this.placeOf(event), { mode } = this.atlas;
    const kind = event.shiftKey ? (mode === "select" ? "move" : "select") : mode;
    this.gesture = { kind, from: place, view: { ...this.atlas.view }, adds: event.ctrlKey || event.metaKey };
    if (kind === "turn") this.gesture.turned = this.atlas.turnedNow;
    if (kind === "select") this.gesture.line = [[place.x, place.y]];
  }

  move(event) {
    if (!this.ready) return;
    if (!this.gesture) { if (event.pointerType === "mouse") this.hover(event); return; }
    const place = this.placeOf(event), { gesture } = this;
    if (gesture.kind === "pinch") { this.pinch(event); return; }
    gesture.moved ||= Math.hypot(place.px - gesture.from.px, place.py - gesture.from.py) > NEAR * this.ratio;
    if (!gesture.moved) return;
    this.away();
    if (gesture.kind === "move") {
      const { scale } = this.at;
      this.atlas.look({ x: gesture.view.x - (place.px - gesture.from.px) / scale, y: gesture.view.y + (place.py - gesture.from.py) / scale });
    } else if (gesture.turned) {
      const angle = Math.PI / Math.min(this.width, this.height);
      this.atlas.turn(gesture.turned, (place.px - gesture.from.px) * angle, (place.py - gesture.from.py) * angle);
    } else if (gesture.line) {
      gesture.line.push([place.x, place.y]);
      this.drawOver();
    }
  }

  pinch(event) {
    const before = [...this.pointers.values()];
    this.pointers.set(event.pointerId, event);
    const after = [...this.pointers.values()];
    if (after.length < 2) return;
    /** @type {(two: PointerEvent[]) => number} */
    const apart = ([a, b]) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
    /** @type {(two: PointerEvent[]) => Place} */
    const middle = ([a, b]) => this.placeOf({ clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 });
    const [from, to] = [middle(before), middle(after)], { view } = this.atlas;
    this.atlas.look({ x: view.x + from.x - to.x, y: view.y + from.y - to.y });
    this.atlas.zoom(apart(after) / Math.max(1, apart(before)), middle(after));
  }

  release(event, cancelled = false) {
    if (!this.pointers.delete(event.pointerId)) return;
    const { gesture } = this;
    if (this.pointers.size) return;
    this.gesture = null;
    if (!this.ready || !gesture || gesture.kind === "pinch") return;
    if (!cancelled && !gesture.moved) {
      const row = this.nearest(this.placeOf(event));
      this.atlas.chooseRows(row < 0 ? [] : [row], gesture.adds);
      if (event.pointerType !== "mouse") this.hover(event);
    } else if (!cancelled && gesture.line) {
      this.atlas.chooseInside(this, gesture.line, gesture.adds);
    }
    this.drawOver();
  }

  pressKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.ready) return;
    const { view, mode } = this.atlas, step = 0.12 / view.zoom;
    /** @type {(across: number, up: number) => () => void} */
    const go = (across, up) => () => (mode === "turn" ? this.atlas.turn(this.atlas.turnedNow, 0.15 * across, -0.15 * up)
      : this.atlas.look({ x: view.x + across * step, y: view.y + up * step }));
    const acts = {
      ArrowLeft: go(-1, 0),
      ArrowRight: go(1, 0),
      ArrowUp: go(0, 1),
      ArrowDown: go(0, -1),
      "+": () => this.atlas.zoom(1.4),
      "=": () => this.atlas.zoom(1.4),
      "-": () => this.atlas.zoom(1 / 1.4),
      0: () => this.atlas.reset(),
      Escape: () => { this.gesture = null; this.away(); this.atlas.clear(); },
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}
