// @ts-check
// Table of the selected rows: sortable by any column, some on the page, all in a CSV file.

const ROWS_AT_A_TIME = 100;

// Put an apostrophe before text that a spreadsheet would read as a formula, as in plain.as_cell.
const unevaluated = (text) => (/^[=+\-@\t\r]/.test(text) && !(text.trim() && isFinite(text)) ? `'${text}` : text);

const csvOf = (titles, rows) => {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const line = (row) => row.map((text) => quoted(unevaluated(String(text)))).join(",");
  return [titles, ...rows].map(line).join("\r\n") + "\r\n";
};

const save = (content, name, type) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

class RowTable {
  constructor(atlas, root) {
    Object.assign(this, { atlas, root, given: [], rows: [], by: -1, down: false, shown: ROWS_AT_A_TIME });
    this.head = root.querySelector("thead tr");
    this.body = root.querySelector("tbody");
    this.more = root.querySelector(".more");
    this.more.addEventListener("click", () => { this.shown += 10 * ROWS_AT_A_TIME; this.fill(); });
    root.querySelector(".export").addEventListener("click", () => this.export());
  }

  // Content of each column: -1 is the row's name.
  get columns() { return [-1, ...this.atlas.columns.keys()]; }
  title(place) { return place < 0 ? "row" : this.atlas.columns[place].title; }
  text(place, row) { return place < 0 ? String(this.atlas.ids.id(row)) : this.atlas.columns[place].text(row); }

  // Rows in table order.
  show(rows) {
    this.given = rows;
    this.shown = ROWS_AT_A_TIME;
    this.root.hidden = rows.length === 0;
    if (!rows.length) return;
    this.sort();
  }

  // Rows in table order, or sorted by a column with ties in table order.
  sort() {
    const { by, down, atlas } = this;
    this.rows = this.given.slice();
    if (by >= 0) {
      const { rank } = atlas.columns[by], sign = down ? -1 : 1;
      this.rows.sort((a, b) => sign * (rank(a) - rank(b)) || atlas.order[a] - atlas.order[b]);
    } else if (down) this.rows.reverse();
    this.fill();
  }

  fill() {
    this.head.replaceChildren(...this.columns.map((place) => {
      const cell = document.createElement("th"), button = document.createElement("button");
      cell.scope = "col";
      if (place === this.by) cell.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      button.type = "button";
      button.textContent = this.title(place);
      button.addEventListener("click", () => {
        this.down = this.by === place && !this.down;
        this.by = place;
        this.sort();
        this.head.children[this.columns.indexOf(place)].firstChild.focus();
      });
      cell.append(button);
      return cell;
    }));
    this.body.replaceChildren(...Array.from(this.rows.subarray(0, this.shown), (row) => {
      const line = document.createElement("tr");
      for (const place of this.columns) line.insertCell().textContent = this.text(place, row);
      line.addEventListener("pointerenter", () => this.atlas.hover(row));
      line.addEventListener("pointerleave", () => this.atlas.hover(-1));
      return line;
    }));
    const left = this.rows.length - this.shown;
    this.more.hidden = left <= 0;
    this.more.textContent = `${count.format(Math.min(left, 10 * ROWS_AT_A_TIME))} more of ${count.format(left)}`;
  }

  export() {
    const { columns } = this;
    const value = (place, row) => {
      if (place < 0) return this.text(place, row);
      const found = this.atlas.columns[place].value(row);
      return Number.isNaN(found) ? "" : found;
    };
    const rows = Array.from(this.rows, (row) => columns.map((place) => value(place, row)));
    save(csvOf(columns.map((place) => this.title(place)), rows), `${this.atlas.header.name}-rows.csv`, "text/csv");
  }
}
