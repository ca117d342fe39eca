// @ts-check
// State that all maps of the page share, and the page's controls.

const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

class Atlas {
  constructor(root, header) {
    const order = drawingOrder(header.rows);
    Object.assign(this, {
      root, header, order, drawn: drawnPlaces(order), columns: [], view: { x: 0.5, y: 0.5, zoom: 1 }, home: true, pair: [0, 1], turned: null,
      mode: "select", hovered: -1, chosen: null, chosenCount: 0, way: header.ways[0], naming: null, reading: [], lookups: new Map(),
    });
    this.find = (selector) => root.querySelector(selector);
    this.key = this.find(".key");
    this.status = this.find(".status [role=status]");
  }

  read(place) {
    return this.reading[place] ??= readColumn(this.header.columns[place], this.header.rows, this.order)
      .then((column) => { this.columns[place] = column; });
  }

  // Order of a map's coordinates in the page: the first map's by row names, others' by positions on the first.
  async coded(panel) {
    const { header, drawn } = this, [first] = this.panels;
    if (panel !== first) {
      await first.load();
      return this.along ??= byPlace(first.axes, drawn);
    }
    if (header.sorted === null) return drawn.map((_, place) => place);
    await this.read(header.sorted);
    const { codes } = this.columns[header.sorted];
    return sortedBy(Uint32Array.from(drawn, (i) => codes[i]));
  }

  // --- colours ---------------------------------------------------------------------------------------------------

  // Codes of rows and colours of codes on a map; a way may use another column on each map.
  /** @type {(panel: PanelEntry) => Shades} */
  shades(panel) {
    const { way } = this, place = way?.columns[this.header.panels.indexOf(panel)] ?? null;
    if (!way || place === null || !this.columns[place]) return { codes: new Uint8Array(this.header.rows), colours: [rgb(this.header.grey)] };
    const key = `${way.by} ${place}`;
    if (!this.lookups.has(key)) this.lookups.set(key, this.lookup(way, this.columns[place]));
    return /** @type {Shades} */ (this.lookups.get(key));
  }

  /** @type {(way: Way, column: Column) => Shades} */
  lookup(way, column) {
    const { header } = this, grey = rgb(header.grey);
    if (column.names) return { codes: column.codes, colours: Uint32Array.from(way.colours, rgb) };
    const steps = 256, colours = rampOf(header.ramp, steps), span = way.high - way.low || 1;
    const along = (value) => (Number.isNaN(value) ? steps : Math.max(0, Math.min(steps - 1, Math.round((value - way.low) / span * (steps - 1)))));
    if (column.levels) return { codes: column.codes, colours: Uint32Array.from(column.levels, (level) => (level === null ? grey : colours[along(level)])) };
    const codes = new Uint16Array(header.rows);
    for (let i = 0; i < codes.length; i++) codes[i] = along(column.value(i));
    return { codes, colours: [...colours, grey] };
  }

  async colourBy(place) {
    this.way = this.header.ways[place];
    this.naming = null;
    this.showKey();
    this.redraw();
    this.say();
  }

  /** @returns {NamedColumn | null} */
  get categories() { return this.way?.kind === "categories" ? /** @type {NamedColumn} */ (this.columns[this.way.columns[0]]) : null; }

  /** @param {NamedColumn} column */
  tallyOf(column) {
    if (!column.tally) {
      column.tally = new Uint32Array(column.names.length);
      for (const code of column.codes) column.tally[code]++;
    }
    return column.tally;
  }

  // Show names on the maps for more than ten categories, unless the switch says otherwise.
  named() {
    const column = this.categories;
    const names = column && (this.naming ?? column.names.length > 10);
    return names ? { column, tally: this.tallyOf(column) } : null;
  }

  showKey() {
    const { key, way } = this, column = this.categories;
    const button = this.find(".naming");
    button.hidden = !column;
    button.setAttribute("aria-pressed", String(Boolean(this.named())));
    key.replaceChildren();
    if (!way) return;
    if (column) {
      const tally = this.tallyOf(column);
      key.append(...column.names.map((name, code) => {
        const dot = make("i");
        dot.style.background = way.colours[code];
        const one = make("button", { type: "button", title: `${count.format(tally[code])} rows` }, dot, make("span", { textContent: name }), make("small", { textContent: count.format(tally[code]) }));
        one.setAttribute("aria-pressed", "false");
        one.dataset.code = code;
        return one;
      }));
      return;
    }
    const { names = [], share: shared } = this.columns[way.columns[0]];
    const strip = make("i"), ends = make("span", { className: "ticks" });
    strip.style.background = `linear-gradient(to right, ${this.header.ramp.join(", ")})`;
    if (way.ticks) {
      for (const [tick, at] of way.ticks) {
        const mark = make("span", { textContent: shared ? `${100 * tick} %` : Math.abs(tick) >= 1e4 && Math.abs(tick) < 1e15 ? count.format(tick) : String(tick) });
        mark.style.left = `${100 * at}%`;
        ends.append(mark);
      }
    } else {
      ends.className = "ends";
      ends.append(make("span", { textContent: names[0] }), make("span", { textContent: way.last }));
    }
    const caption = way.kind === "order" ? `${count.format(names.length)} names, in name order` : "";
    key.append(make("div", { className: "scale" }, strip, ends), make("small", { textContent: caption }));
  }

  // --- view ------------------------------------------------------------------------------------------------------

  look(view) {
    const clamp = (value) => Math.max(-0.2, Math.min(1.2, value));
    this.home = false;
    Object.assign(this.view, view);
    Object.assign(this.view, { x: clamp(this.view.x), y: clamp(this.view.y) });
    for (const panel of this.panels) panel.tip.hidden = true;
    this.redraw(this.header.rows > QUICK_ROWS);
  }

  /** @param {number} by @param {{ x: number, y: number }} about */
  zoom(by, about = this.view) {
    const { view } = this, zoom = Math.max(0.5, Math.min(MOST_ZOOM, view.zoom * by)), part = 1 - view.zoom / zoom;
    this.look({ x: view.x + (about.x - view.x) * part, y: view.y + (about.y - view.y) * part, zoom });
  }

  // What the maps show, by name: a pair of axes, or a map that is turned.
  get seen() { return this.turned ? "turned" : String(this.pair); }

  get turnedNow() { return this.turned ?? facing(this.pair); }

  // Turn maps of three dimensions from a rotation, by angles to the right and down.
  turn(from, across, down) {
    if (!this.turned) {
      const axes = this.find("[name=axes]:checked");
      if (axes) axes.checked = false;
      this.view = { x: 0.5, y: 0.5, zoom: TURNED_ZOOM * (this.home ? 1 : this.view.zoom) };
    }
    this.turned = turnedBy(from, across, down);
    for (const panel of this.panels) panel.places.clear();
    this.look({});
  }

  // Show a pair of axes.
  face(pair) {
    if (this.turned) this.home = true;
    Object.assign(this, { pair, turned: null });
    if (this.home) this.reset();
    this.redraw();
  }

  reset() {
    this.fit();
    this.look({});
    this.home = true;
  }

  // Show all rows of the visible maps, as large as the smallest pane allows.
  fit() {
    const shown = this.panels.filter((panel) => panel.ready && panel.root.clientWidth);
    if (!shown.length) return;
    const [left, right, low, high] = shown.map((panel) => panel.extent)
      .reduce((all, one) => all.map((end, k) => (k % 2 ? Math.max : Math.min)(end, one[k])));
    const zooms = shown.map(({ width, height }) => Math.min(width / (right - left), height / (high - low)) / Math.min(width, height));
    this.view = { x: (left + right) / 2, y: (low + high) / 2, zoom: Math.min(MOST_HOME, ...zooms) };
    if (shown.length > 1) this.redraw();
  }

  redraw(quick = false) {
    this.quick = quick && (this.quick ?? true);
    clearTimeout(this.resting);
    if (quick) this.resting = setTimeout(() => this.redraw(), 150);
    this.asked ??= requestAnimationFrame(() => {
      const quickly = this.quick;
      this.asked = this.quick = undefined;
      for (const panel of this.panels) panel.draw(quickly);
    });
  }

  readTheme() {
    const style = getComputedStyle(this.root);
    this.ground = (0xff000000 | rgb(this.printing ? "#ffffff" : style.getPropertyValue("--panel").trim())) >>> 0;
    this.inked = this.printing ? "#000000" : style.getPropertyValue("--text").trim();
    for (const panel of this.panels) panel.draw();
  }

  // --- rows ------------------------------------------------------------------------------------------------------

  hover(row) {
    if (row === this.hovered) return;
    this.hovered = row;
    for (const panel of this.panels) panel.drawOver();
  }

  // Tooltip of a row on a map: its name and each column that does not belong to another map.
  factsOf(row, panel) {
    const others = this.header.panels.filter((one) => one !== panel).map((one) => one.kept);
    const columns = [...this.columns.entries()].filter(([place]) => !others.includes(place));
    return [["row", String(this.ids?.id(row) ?? "")], ...columns.map(([, column]) => [column.title, column.text(row)])];
  }

  choose(marks, chosenCount, { fromKey = false } = {}) {
    this.chosen = chosenCount ? marks : null;
    this.chosenCount = chosenCount;
    if (!fromKey) for (const button of this.key.querySelectorAll("[aria-pressed=true]")) button.setAttribute("aria-pressed", "false");
    this.find(".clear").hidden = !chosenCount;
    this.redraw();
    this.say();
    const rows = new Uint32Array(chosenCount);
    if (chosenCount) for (let place = 0, at = 0; place < marks.length; place++) if (marks[this.drawn[place]]) rows[at++] = this.drawn[place];
    this.table?.show(rows);
  }

  marks(adds) { return adds && this.chosen ? this.chosen.slice() : new Uint8Array(this.header.rows); }

  chooseRows(rows, adds = false) {
    const marks = this.marks(adds);
    for (const row of rows) marks[row] = 1;
    this.choose(marks, marks.reduce((sum, mark) => sum + mark, 0));
  }

  chooseInside(panel, line, adds = false) {
    const marks = this.marks(adds), before = adds ? this.chosenCount : 0;
    this.choose(marks, before + markInside(line, panel.x, panel.y, this.header.rows, marks));
  }

  chooseCodes(column, wanted, options) {
    const marks = this.marks(), listed = Uint8Array.from({ length: column.names?.length ?? column.levels.length }, (_, code) => wanted.has(code));
    let chosenCount = 0;
    for (let i = 0; i < marks.length; i++) chosenCount += marks[i] = listed[column.codes[i]];
    this.choose(marks, chosenCount, options);
  }

  clear() { this.choose(null, 0); }

  // "312 of 1,797 rows selected: 8 (290), 3 (14), 5 (8)"
  say() {
    const { chosen, chosenCount, header, status } = this;
    if (!chosen) { status.textContent = "No rows selected"; return; }
    const column = this.way && this.columns[this.way.columns[0]];
    let named = "";
    if (column?.names) {
      const { codes, names } = column, tally = new Uint32Array(names.length);
      for (let i = 0; i < chosen.length; i++) tally[codes[i]] += chosen[i];
      const most = [...tally.entries()].filter(([, rows]) => rows).sort((a, b) => b[1] - a[1]);
      const first = most.slice(0, 3).map(([code, rows]) => `${names[code]} (${count.format(rows)})`);
      if (most.length > 3) first.push(`${count.format(most.length - 3)} more`);
      named = `: ${first.join(", ")}`;
    } else if (column) {
      let sum = 0, known = 0;
      for (let i = 0; i < chosen.length; i++) if (chosen[i] && !Number.isNaN(column.value(i))) { sum += column.value(i); known++; }
      const mean = sum / known;
      if (known) named = `: mean ${column.title} ${column.share ? `${(100 * mean).toFixed(1)} %` : Number(mean.toPrecision(4))}`;
    }
    status.textContent = `${count.format(chosenCount)} of ${count.format(header.rows)} row${header.rows > 1 ? "s" : ""} selected${named}`;
  }
}
