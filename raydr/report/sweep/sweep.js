// @ts-check
// Draw a sweep: parallel axes, a scatter plot, and curves by round. All share one filter and one marked point.
(() => {
  /** @type {(id: string) => any} */
  const at = (id) => document.getElementById(id);
  /** @type {SweepData} */
  const data = JSON.parse(at("sweep").textContent);
  const { axes, points, courses } = data;
  const isInside = (event, selector) => event.target instanceof Element && event.target.closest(selector) !== null;
  const everyPoint = [...points.keys()];
  const count = new Intl.NumberFormat("en-US");
  const SLOT = 0.075; // part of an axis for missing values, and for 0 below a logarithmic scale
  const FEW = 10; // largest number of lines whose bands can be distinguished
  const FEW_WHISKERS = 150;

  const draw = (name, attributes, ...inside) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) if (value != null) element.setAttribute(key, value);
    element.append(...inside);
    return element;
  };

  // --- formats: values of points as in the table, and ticks ---
  const body = /** @type {HTMLTableSectionElement} */ (document.querySelector("#points tbody"));
  const rows = new Map([...body.rows].map((row) => [Number(row.dataset.place), row]));
  const heads = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#points thead th[data-axis]"))];
  const cellOf = axes.map((_, which) => heads.findIndex((head) => Number(head.dataset.axis) === which));
  const cellText = (axis, place) => (axis.values[place] == null ? axis.absent : rows.get(place)?.cells[cellOf[axes.indexOf(axis)]].textContent);
  const valueText = (axis, value) => cellText(axis, axis.values.indexOf(value)).split(" ± ")[0];
  const tickText = (axis, value) => (axis.unit === "bytes" ? size(value) : digits(value, axis.unit === "setting" ? 12 : 6));
  const settingsOf = (place) => axes.filter((axis) => axis.swept && axis.values[place] != null)
    .map((axis) => `${axis.title} ${cellText(axis, place)}`);
  const measuresOf = (place, some) => some.filter((axis) => !axis.swept).map((axis) => `${axis.title} ${cellText(axis, place)}`);

  // Position of each point on an axis, from 0 to 1: missing values lowest, then 0 below a logarithmic scale.
  const laidOut = axes.map((axis) => {
    const known = axis.values.filter((value) => value != null);
    const zero = axis.log && known.some((value) => value === 0);
    /** @type {Tick[]} */
    const slots = [];
    const slot = (text, absent) => slots.push({ at: (slots.length + 0.5) * SLOT, half: SLOT / 2, text, absent });
    if (known.length < points.length) slot(axis.absent, true);
    if (zero) slot("0", false);
    const base = known.length ? slots.length * SLOT + (slots.length ? 0.03 : 0) : 0;
    const along = (share) => base + (1 - base) * share;
    const ticks = [...slots];
    let place;
    if (axis.kind === "category") {
      const n = axis.categories.length;
      place = (value) => along(1 - (value + 0.5) / n);
      axis.categories.forEach((text, k) => ticks.push({ at: place(k), text, half: (0.32 * (1 - base)) / n, name: true }));
    } else {
      const [low, high] = bounds(axis.log ? known.filter((value) => value > 0) : known);
      const ruler = known.length ? scale(low, high, axis.log, 5) : { of: () => 0.5, ticks: [] };
      place = (value) => (axis.log && value === 0 ? slots[slots.length - 1].at : along(ruler.of(value)));
      const distinct = [...new Set(known)].filter((value) => !(axis.log && value === 0)).sort((a, b) => a - b);
      const own = distinct.length <= 8 && distinct.every((value, k) => !k || place(value) - place(distinct[k - 1]) > 0.07);
      for (const value of own ? distinct : ruler.ticks) ticks.push({ at: place(value), text: own ? valueText(axis, value) : tickText(axis, value), half: 0 });
    }
    const centres = axis.values.map((value) => (value == null ? slots[0].at : place(value)));
    const halves = axis.values.map((value) => (value == null ? SLOT / 2 : axis.kind === "category" ? (0.32 * (1 - base)) / axis.categories.length : 0));
    return { ticks, centres, halves, base, along };
  });

  // --- colours ---
  let colourAxis = null;
  let colours = [];
  const hex = (text) => [1, 3, 5].map((k) => parseInt(text.slice(k, k + 2), 16));
  const stops = data.ramp.map(hex);
  const onRamp = (share) => {
    const x = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
    const k = Math.min(Math.floor(x), stops.length - 2);
    return `rgb(${stops[k].map((low, c) => Math.round(low + (stops[k + 1][c] - low) * (x - k))).join(",")})`;
  };
  const colourBy = (which) => {
    colourAxis = axes[which];
    const layout = laidOut[which];
    const legend = at("legend");
    legend.replaceChildren();
    if (!colourAxis) { colours = everyPoint.map(() => data.ramp[1]); return; }
    const chip = (colour, text) => {
      const span = document.createElement("span");
      span.append(draw("svg", { class: "dot", viewBox: "0 0 10 10", "aria-hidden": "true" }, draw("circle", { cx: 5, cy: 5, r: 5, fill: colour })), text);
      legend.append(span);
    };
    const categories = colourAxis.kind === "category";
    const colourOf = (place) => {
      const value = colourAxis.values[place];
      if (value == null) return data.grey;
      if (categories) return colourAxis.categories.length > data.colours.length ? onRamp(value / (colourAxis.categories.length - 1)) : data.colours[value];
      return onRamp((layout.centres[place] - layout.base) / (1 - layout.base));
    };
    colours = everyPoint.map(colourOf);
    if (categories && colourAxis.categories.length <= data.colours.length) colourAxis.categories.forEach((text, k) => chip(data.colours[k], text));
    else {
      const known = colourAxis.values.filter((value) => value != null);
      const [low, high] = categories ? [0, colourAxis.categories.length - 1] : bounds(known);
      const span = document.createElement("span");
      span.className = "ramp";
      const stripes = Array.from({ length: 40 }, (_, k) => draw("rect", { x: k, y: 0, width: 1.2, height: 3, fill: onRamp(k / 39) }));
      const bar = draw("svg", { class: "scale", viewBox: "0 0 40 3", preserveAspectRatio: "none", "aria-hidden": "true" }, ...stripes);
      span.append(known.length ? valueText(colourAxis, low) : "", bar, known.length ? valueText(colourAxis, high) : "");
      legend.append(span);
    }
    if (colourAxis.values.some((value) => value == null)) chip(data.grey, colourAxis.absent);
  };

  // --- shared by all views: the filter, the marked point, the point under the pointer ---
  const brushes = new Map(); // axis to [low, high] of its length
  let kept = everyPoint.map(() => true);
  let chosen = null;
  let pointed = null;
  const within = () => everyPoint.map((place) => {
    for (const [which, [low, high]] of brushes) {
      const { centres, halves } = laidOut[which];
      if (centres[place] + halves[place] < low || centres[place] - halves[place] > high) return false;
    }
    return true;
  });

  const tip = at("tip");
  const showTip = (place, event) => {
    if (place == null) { tip.hidden = true; return; }
    tip.textContent = [`Point ${points[place].point}`, ...settingsOf(place), ...measuresOf(place, data.wanted.map((k) => axes[k]))].map((line) => shorten(line, 90)).join("\n");
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 16 + box.width > innerWidth ? event.clientX - 16 - box.width : event.clientX + 16;
    tip.style.left = `${Math.max(4, x)}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 8))}px`;
  };

  // Move the elements of a point between the front group and the faint one.
  const sorted = (behind, before, elements) => {
    elements.forEach((element, place) => { if (element) (kept[place] ? before : behind).append(element); });
  };

  // --- parallel axes: side by side, or stacked on a narrow page ---
  const parallel = at("parallel");
  const varies = (axis) => new Set(axis.values.filter((value) => value != null)).size > 1;
  const keys = [...axes.keys()].filter((k) => axes[k].swept);
  const telling = keys.filter((k) => varies(axes[k]));
  let shown = (telling.length ? telling : keys).concat(data.wanted);
  let scene = null;
  const drawParallel = () => {
    const width = Math.max(280, parallel.clientWidth || 1000);
    const tall = width < 640;
    const n = shown.length;
    const [left, right, top] = tall ? [14, 14, 40] : [Math.min(90, width / n / 2), Math.min(90, width / n / 2), 68];
    const long = tall ? width - left - right : 340;
    const gap = tall ? 92 : n > 1 ? (width - left - right) / (n - 1) : 0;
    const height = tall ? top + gap * (n - 1) + 46 : top + long + 26;
    const crossing = (k) => (tall ? top : n > 1 ? left : width / 2) + k * gap;
    const spot = (k, share) => (tall ? [left + share * long, crossing(k)] : [crossing(k), top + (1 - share) * long]);

    // Spread the lines through a name by colour, so that bundles are visible.
    const spread = shown.map((which) => {
      const { centres, halves } = laidOut[which];
      const groups = new Map();
      for (const place of everyPoint) if (halves[place]) {
        const key = centres[place];
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push(place);
      }
      const places = [...centres];
      const own = colourAxis ? laidOut[axes.indexOf(colourAxis)].centres : centres;
      for (const group of groups.values()) {
        group.sort((a, b) => own[a] - own[b] || a - b);
        group.forEach((place, k) => { places[place] += group.length > 1 ? halves[place] * (1.6 * (k / (group.length - 1)) - 0.8) : 0; });
      }
      return places;
    });
    const path = (place) => {
      let d = "";
      for (let k = 0; k < n; k += 1) {
        const [x, y] = spot(k, spread[k][place]).map((v) => Math.round(v * 10) / 10);
        if (!k) d = `M${x} ${y}`;
        else {
          const [px, py] = spot(k - 1, spread[k - 1][place]).map((v) => Math.round(v * 10) / 10);
          const middle = Math.round(crossing(k) - gap / 2);
          d += tall ? `C${px} ${middle} ${x} ${middle} ${x} ${y}` : `C${middle} ${py} ${middle} ${y} ${x} ${y}`;
        }
      }
      return n === 1 ? `${d}h0.1` : d; // one axis gives a dot, none gives nothing
    };
    const opacity = Math.min(0.85, Math.max(0.22, 9 / Math.sqrt(points.length)));
    const behind = draw("g", { class: "lines off" });
    const before = draw("g", { class: "lines", "stroke-opacity": opacity });
    const overlay = draw("g", { class: "overlay" });
    const lines = everyPoint.map((place) => draw("path", { d: path(place), stroke: colours[place] }));
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Parallel axes, a line for each point" }, behind, before, overlay);
    const rails = draw("g", {});
    const boxes = draw("g", {});
    shown.forEach((which, k) => {
      const axis = axes[which];
      const layout = laidOut[which];
      const [[x0, y0], [x1, y1]] = [spot(k, layout.base), spot(k, 1)];
      if (axis.values.some((value) => value != null)) rails.append(draw("line", { class: "axis", x1: x0, y1: y0, x2: x1, y2: y1 }));
      for (const tick of layout.ticks) {
        const [x, y] = spot(k, tick.at);
        if (tick.half) {
          const [a, b] = [spot(k, tick.at - tick.half), spot(k, tick.at + tick.half)];
          rails.append(draw("rect", { class: "slot", rx: 3, x: tall ? a[0] : x - 5, y: tall ? y - 5 : b[1], width: tall ? b[0] - a[0] : 10, height: tall ? 10 : a[1] - b[1] }));
        } else rails.append(draw("line", { class: "axis", x1: tall ? x : x - 4, x2: tall ? x : x + 4, y1: tall ? y - 4 : y, y2: tall ? y + 4 : y }));
      }
      const room = tall ? 0 : gap || width;
      // On a narrow page, many names stand in two rows.
      const rows = tall && layout.ticks.length > 5 && layout.ticks.some((tick) => tick.half) ? 2 : 1;
      const label = (tick, shown, row) => {
        const [x, y] = spot(k, tick.at);
        const half = 3.7 * shown.length; // keep the text on the page
        const text = tall ? draw("text", { x: Math.min(Math.max(x, half), width - half), y: y + 20 + 14 * row, "text-anchor": "middle" })
          : draw("text", { x: x + 9, y: y + 4 });
        text.setAttribute("class", `halo${tick.absent ? " absent" : ""}`);
        text.append(shown, draw("title", {}, tick.text));
        return text;
      };
      // Leave out a tick label that would overlap the one before, but never a name or the label of missing values.
      const letters = tall ? Math.max(4, Math.floor(rows * long / 6.6 / Math.max(1, layout.ticks.length)) - (rows - 1)) : Math.max(5, Math.floor((k === n - 1 ? Math.max(right, 70) : room) / 6.8) - 2);
      let end = -Infinity;
      for (const [place, tick] of [...layout.ticks].sort((a, b) => a.at - b.at).entries()) {
        const text = tall && tick.absent && tick.text.length > 5 ? "n/a" : inTheMiddle(tick.text, letters);
        const half = tall ? text.length * 3.3 + 3 : 6.5;
        const middle = (tall ? 1 : -1) * spot(k, tick.at)[tall ? 0 : 1];
        if (middle - half < end && !tick.half) continue;
        end = middle + half;
        rails.append(label(tick, text, place % rows));
      }
      const parts = axis.title.split(".");
      const ends = (axis.better === "max" ? "\u00a0↑" : axis.better === "min" ? "\u00a0↓" : "");
      const whole = axis.title + ends;
      if (tall) rails.append(draw("text", { class: "title halo", x: left, y: crossing(k) - 12 }, shorten(whole, Math.floor(width / 7.4)), draw("title", {}, whole)));
      else {
        const most = Math.max(8, Math.floor((n > 1 ? Math.min(gap, k === 0 ? 2 * left : k === n - 1 ? 2 * right : gap) : width) / 7.2));
        // Break a dotted key before its last part, and a title between words.
        const lines = axis.swept && parts.length > 1 ? [`${parts.slice(0, -1).join(".")}.`, parts.at(-1)] : wrapped(axis.title, most - ends.length, 3);
        lines[lines.length - 1] = shorten(lines.at(-1), most - ends.length) + ends;
        lines.forEach((text, line) => {
          rails.append(draw("text", { class: axis.swept && line < lines.length - 1 ? "" : "title", x: crossing(k), y: top - 14 - 16 * (lines.length - 1 - line), "text-anchor": "middle" }, shorten(text, most), draw("title", {}, whole)));
        });
      }
      // The part of the axis that accepts a filter.
      const wide = Math.min(36, tall ? 44 : gap * 0.4 || 36);
      const [[bx, by], [tx, ty]] = [spot(k, 0), spot(k, 1)];
      const reach = draw("rect", {
        class: "reach", tabindex: 0, role: "slider", "data-k": k, "aria-label": `Filter of ${axis.title}`, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": 50, "aria-valuetext": "everything",
        x: tall ? bx - 8 : bx - wide / 2, y: tall ? by - wide / 2 : ty - 8, width: tall ? tx - bx + 16 : wide, height: tall ? wide : by - ty + 16,
      });
      reach.style.touchAction = tall ? "pan-y" : "pan-x";
      boxes.append(draw("rect", { class: "brush", visibility: "hidden" }), reach);
      scenes(reach, which, k, tall, wide, spot);
    });
    svg.append(rails, boxes);
    parallel.replaceChildren(svg);

    const nearest = (event) => {
      const box = svg.getBoundingClientRect();
      const ratio = width / box.width;
      const [x, y] = [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
      const [across, along] = tall ? [y, x] : [x, y];
      const k = Math.min(Math.max(Math.floor((across - crossing(0)) / (gap || 1)), 0), n - 2);
      if (n < 2 || across < crossing(0) - 12 || across > crossing(n - 1) + 12) return null;
      const share = Math.min(Math.max((across - crossing(k)) / gap, 0), 1);
      let [low, high] = [0, 1]; // parameter of the curve at this position, the same for all lines
      for (let i = 0; i < 18; i += 1) {
        const t = (low + high) / 2;
        const reached = 1.5 * t * (1 - t) + t ** 3;
        if (reached < share) low = t; else high = t;
      }
      const t = (low + high) / 2;
      const eased = 3 * t * t - 2 * t * t * t;
      /** @type {[number | null, number]} */
      let [best, distance] = [null, 9];
      for (const place of everyPoint) if (kept[place]) {
        const [from, to] = [spot(k, spread[k][place]), spot(k + 1, spread[k + 1][place])].map((p) => p[tall ? 0 : 1]);
        const off = Math.abs(from + (to - from) * eased - along);
        if (off < distance) [best, distance] = [place, off];
      }
      return best;
    };
    svg.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse" && !event.buttons) point(nearest(event), event); });
    svg.addEventListener("pointerleave", () => point(null));
    svg.addEventListener("click", (event) => {
      if (isInside(event, ".reach")) return;
      choose(nearest(event));
    });
    scene = {
      filter: () => {
        sorted(behind, before, lines);
        shown.forEach((which, k) => {
          const brush = brushes.get(which);
          const mark = boxes.querySelectorAll(".brush")[k];
          const reach = boxes.querySelectorAll(".reach")[k];
          mark.setAttribute("visibility", brush ? "visible" : "hidden");
          reach.setAttribute("aria-valuetext", brush ? `${Math.round(100 * brush[0])} to ${Math.round(100 * brush[1])} % of the axis` : "everything");
          reach.setAttribute("aria-valuenow", brush ? Math.round(50 * (brush[0] + brush[1])) : 50);
          if (!brush) return;
          const [a, b] = [spot(k, brush[0]), spot(k, brush[1])];
          const box = tall ? { x: a[0], y: a[1] - 9, width: b[0] - a[0], height: 18 } : { x: a[0] - 9, y: b[1], width: 18, height: a[1] - b[1] };
          for (const [key, value] of Object.entries(box)) mark.setAttribute(key, Math.max(value, 1));
        });
      },
      mark: () => {
        overlay.replaceChildren();
        before.classList.toggle("faint", chosen != null || pointed != null);
        for (const place of new Set([chosen, pointed])) if (place != null) {
          overlay.append(draw("path", { d: path(place), class: "under" }), draw("path", { d: path(place), stroke: colours[place] }));
        }
      },
    };
  };

  // Filters: dragged along an axis or moved with keys.
  const scenes = (reach, which, k, tall, wide, spot) => {
    const share = (event) => {
      const svg = reach.ownerSVGElement;
      const box = svg.getBoundingClientRect();
      const ratio = svg.viewBox.baseVal.width / box.width;
      const along = tall ? (event.clientX - box.left) * ratio : (event.clientY - box.top) * ratio;
      const [from, to] = [spot(k, 0), spot(k, 1)].map((p) => p[tall ? 0 : 1]);
      return Math.min(Math.max((along - from) / (to - from), -0.02), 1.02);
    };
    let start = null;
    reach.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      reach.setPointerCapture(event.pointerId);
      start = share(event);
    });
    reach.addEventListener("pointermove", (event) => {
      if (start == null) return;
      const here = share(event);
      if (Math.abs(here - start) > 0.012) { brushes.set(which, [Math.min(start, here), Math.max(start, here)]); soon(); }
    });
    const end = (event) => {
      if (start != null && event.type === "pointerup" && Math.abs(share(event) - start) <= 0.012) brushes.delete(which);
      start = null;
      filter();
    };
    reach.addEventListener("pointerup", end);
    reach.addEventListener("pointercancel", end);
    reach.addEventListener("keydown", (event) => {
      const [low, high] = brushes.get(which) ?? [0, 1];
      const up = event.key === "ArrowUp" || event.key === "ArrowRight";
      if (!up && !["ArrowDown", "ArrowLeft", "Escape"].includes(event.key)) return;
      event.preventDefault();
      if (event.key === "Escape") brushes.delete(which);
      else if (!brushes.has(which)) brushes.set(which, up ? [0.75, 1.02] : [-0.02, 0.25]);
      else if (event.shiftKey) brushes.set(which, up ? [Math.max(-0.02, low - 0.05), Math.min(1.02, high + 0.05)] : [Math.min(low + 0.05, (low + high) / 2), Math.max(high - 0.05, (low + high) / 2)]);
      else {
        const by = up ? Math.min(0.05, 1.02 - high) : -Math.min(0.05, low + 0.02);
        brushes.set(which, [low + by, high + by]);
      }
      filter();
    });
  };

  // --- one measure against another ---
  const across = at("across");
  const upwards = at("upwards");
  let scatter = null;
  const valueOf = (axis, place) => /** @type {number} */ (axis.values[place]); // of a point that has both measures
  const drawScatter = () => {
    const holder = at("scatter");
    const width = Math.max(280, holder.clientWidth || 800);
    const height = Math.min(520, Math.max(320, width * 0.62));
    const [left, right, top, bottom] = [74, 16, 16, 52];
    const [x, y] = [axes[across.value], axes[upwards.value]];
    const places = everyPoint.filter((place) => x.values[place] != null && y.values[place] != null);
    const logs = [x, y].map((axis) => axis.log && places.every((place) => valueOf(axis, place) > 0));
    const spans = [x, y].map((axis, k) => {
      let [low, high] = bounds(places.flatMap((place) => {
        const [value, deviation] = [valueOf(axis, place), axis.deviations[place] ?? 0];
        return logs[k] ? [value] : [value - deviation, value + deviation];
      }));
      if (logs[k]) { const pad = (high / low) ** 0.04; return [low / pad, high * pad]; }
      const pad = (high - low || Math.abs(high) || 1) * 0.04;
      return [low - pad, high + pad];
    });
    const rulers = [x, y].map((axis, k) => scale(...spans[k], logs[k], k ? 6 : width < 520 ? 3 : 6));
    const px = (value) => left + rulers[0].of(value) * (width - left - right);
    const py = (value) => height - bottom - rulers[1].of(value) * (height - top - bottom);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y.title} over ${x.title}` });
    const ticks = (axis, ruler, k) => {
      for (const value of ruler.ticks) {
        const [tx, ty] = [px(value), py(value)];
        svg.append(k ? draw("line", { class: "grid", x1: left, x2: width - right, y1: ty, y2: ty }) : draw("line", { class: "grid", x1: tx, x2: tx, y1: top, y2: height - bottom }));
        svg.append(k ? draw("text", { x: left - 8, y: ty + 4, "text-anchor": "end" }, tickText(axis, value)) : draw("text", { x: tx, y: height - bottom + 18, "text-anchor": "middle" }, tickText(axis, value)));
      }
    };
    const name = (axis, k) => `${axis.title}${axis.better === "max" ? " ↑" : axis.better === "min" ? " ↓" : ""}${logs[k] ? ", logarithmic" : ""}`;
    if (places.length) { ticks(x, rulers[0], 0); ticks(y, rulers[1], 1); }
    svg.append(draw("text", { class: "title", x: width - right, y: height - 8, "text-anchor": "end" }, name(x, 0)));
    svg.append(draw("text", { class: "title", x: 15, y: top, "text-anchor": "end", transform: `rotate(-90 15 ${top})` }, name(y, 1)));
    const behind = draw("g", { class: "off" });
    const before = draw("g", {});
    const lead = draw("g", {});
    const overlay = draw("g", { class: "overlay" });
    const whiskers = (place) => {
      const [vx, vy, dx, dy] = [valueOf(x, place), valueOf(y, place), x.deviations[place], y.deviations[place]];
      const from = (value, deviation, k) => Math.max(value - deviation, logs[k] ? spans[k][0] : -Infinity);
      const group = draw("g", { stroke: colours[place], class: "whisker" });
      if (dx) group.append(draw("line", { x1: px(from(vx, dx, 0)), x2: px(vx + dx), y1: py(vy), y2: py(vy) }));
      if (dy) group.append(draw("line", { x1: px(vx), x2: px(vx), y1: py(from(vy, dy, 1)), y2: py(vy + dy) }));
      return group;
    };
    const radius = points.length > 300 ? 3.2 : 4.8;
    const marks = [];
    for (const place of places) {
      marks[place] = draw("g", {});
      if (places.length <= FEW_WHISKERS) marks[place].append(whiskers(place));
      marks[place].append(draw("circle", { cx: px(x.values[place]), cy: py(y.values[place]), r: radius, fill: colours[place], "fill-opacity": points.length > 300 ? 0.75 : 0.95 }));
    }
    svg.append(behind, before, lead, overlay);
    holder.replaceChildren(svg);
    const nearest = (event) => {
      const box = svg.getBoundingClientRect();
      const ratio = width / box.width;
      /** @type {[number | null, number]} */
      let [best, distance] = [null, event.pointerType === "mouse" ? 14 : 26];
      for (const place of places) if (kept[place]) {
        const off = Math.hypot((event.clientX - box.left) * ratio - px(x.values[place]), (event.clientY - box.top) * ratio - py(y.values[place]));
        if (off < distance) [best, distance] = [place, off];
      }
      return best;
    };
    svg.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") point(nearest(event), event); });
    svg.addEventListener("pointerleave", () => point(null));
    svg.addEventListener("click", (event) => choose(nearest(event)));
    scatter = {
      filter: () => {
        sorted(behind, before, marks);
        lead.replaceChildren();
        const some = places.filter((place) => kept[place]);
        const words = [];
        if (x === y) words.push("Choose two different measures.");
        else if (x.better && y.better) {
          const front = frontOf(some, x, y);
          // A staircase from the best value of the first measure: the second improves at each step.
          const corners = front.map((place) => [px(x.values[place]), py(y.values[place])]);
          const d = corners.map(([fx, fy], k) => (k ? `H${fx}V${fy}` : `M${fx} ${fy}`)).join("");
          lead.append(draw("path", { class: "front", d }));
          for (const place of front) lead.append(draw("circle", { class: "best", cx: px(x.values[place]), cy: py(y.values[place]), r: radius + 0.6, fill: colours[place] }));
          svg.dataset.front = front.map((place) => points[place].point).sort((a, b) => a - b).join(" ");
          words.push(`Dashed: the Pareto front, ${count.format(front.length)} of the ${count.format(some.length)} points shown. No other point is as good as one of these in both measures and better in one.`);
        } else words.push(`There is no Pareto front, because neither high nor low values are better: ${[x, y].filter((axis) => !axis.better).map((axis) => axis.title).join(", ")}.`);
        if (places.length < points.length) words.push(`Points without a value of both measures are not drawn: ${count.format(points.length - places.length)}.`);
        words.push(places.length <= FEW_WHISKERS ? "Whiskers are one standard deviation over repeats to each side." : "Whiskers, one standard deviation over repeats to each side, are drawn only for the marked point.");
        at("front").textContent = words.join(" ");
      },
      mark: () => {
        overlay.replaceChildren();
        for (const place of new Set([chosen, pointed])) if (place != null && marks[place]) {
          const [cx, cy] = [px(x.values[place]), py(y.values[place])];
          overlay.append(whiskers(place), draw("circle", { cx, cy, r: radius + 1, fill: colours[place] }), draw("circle", { class: "ring", cx, cy, r: radius + 4 }));
        }
      },
    };
  };

  // --- curves by round, one chart per value of a key ---
  const course = at("course");
  const facet = at("facet");
  const facets = axes.filter((axis) => axis.swept && axis.kind === "category" && axis.categories.length > 1 && axis.categories.length <= 8);
  const drawCourses = () => {
    if (!course) return;
    const drawn = courses[course.value];
    const key = axes[facet.value];
    const groups = key ? [...key.categories.keys(), null] : [undefined];
    const holder = at("courses");
    const bands = drawn.bands.filter((band) => kept[band.place]);
    const spanOf = (some) => bounds(some.flatMap((band) => band.means.flatMap((mean, k) => [mean - (band.deviations[k] ?? 0), mean + (band.deviations[k] ?? 0)])));
    const meansOf = (some) => bounds(some.flatMap((band) => band.means));
    const charts = [];
    for (const group of groups) {
      const own = bands.filter((band) => group === undefined || key.values[band.place] === group);
      if (!own.length) continue;
      const [width, height, left, right, top, bottom] = [400, 230, 54, 10, 8, 34];
      const scaled = drawn.shared ? bands : own;
      const [least, most] = meansOf(scaled);
      const log = least > 0 && most >= 100 * least;
      const [low, high] = log ? [least, most] : spanOf(scaled);
      const [first, last] = bounds(scaled.flatMap((band) => [band.rounds[0], band.rounds.at(-1)]));
      const [rx, ry] = [scale(first, last, false, 5), scale(low, high, log, 5)];
      const px = (round) => left + rx.of(round) * (width - left - right);
      const py = (value) => height - bottom - ry.of(log ? Math.max(value, low) : value) * (height - top - bottom);
      const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${drawn.title} by round` });
      for (const value of ry.ticks) {
        svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: py(value), y2: py(value) }), draw("text", { x: left - 7, y: py(value) + 4, "text-anchor": "end" }, digits(value, 6)));
      }
      for (const round of rx.ticks) if (Number.isInteger(round)) svg.append(draw("text", { x: px(round), y: height - bottom + 17, "text-anchor": "middle" }, digits(round, 9)));
      svg.append(draw("text", { x: width - right, y: height - 2, "text-anchor": "end" }, `round${log ? "; y axis logarithmic" : ""}`));
      const lines = draw("g", { class: "lines", "stroke-opacity": chosen == null ? Math.min(0.9, Math.max(0.25, 7 / Math.sqrt(own.length))) : 0.25 });
      const overlay = draw("g", { class: "overlay" });
      const lineOf = (band) => `M${band.rounds.map((round, k) => `${px(round).toFixed(1)} ${py(band.means[k]).toFixed(1)}`).join("L")}`;
      const bandOf = (band) => {
        const known = band.rounds.map((round, k) => [px(round).toFixed(1), band.means[k], band.deviations[k] ?? 0]);
        const upper = known.map(([x, mean, deviation]) => `${x} ${py(mean + deviation).toFixed(1)}`);
        const lower = known.map(([x, mean, deviation]) => `${x} ${py(mean - deviation).toFixed(1)}`).reverse();
        return draw("path", { class: "band", d: `M${[...upper, ...lower].join("L")}Z`, fill: colours[band.place] });
      };
      for (const band of own) {
        if (own.length <= FEW && band.deviations.some((deviation) => deviation != null)) svg.append(bandOf(band));
        lines.append(draw("path", { d: lineOf(band), stroke: colours[band.place], "data-place": band.place }));
      }
      for (const band of own) if (band.place === chosen) overlay.append(bandOf(band), draw("path", { d: lineOf(band), class: "under" }), draw("path", { d: lineOf(band), stroke: colours[band.place] }));
      svg.append(lines, overlay);
      const nearest = (event) => {
        const box = svg.getBoundingClientRect();
        const ratio = width / box.width;
        const [x, y] = [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
        /** @type {[number | null, number]} */
        let [best, distance] = [null, 14];
        for (const band of own) band.rounds.forEach((round, k) => {
          const off = Math.hypot(px(round) - x, py(band.means[k]) - y);
          if (off < distance) [best, distance] = [band.place, off];
        });
        return best;
      };
      svg.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") point(nearest(event), event); });
      svg.addEventListener("pointerleave", () => point(null));
      svg.addEventListener("click", (event) => choose(nearest(event)));
      const box = document.createElement("div");
      const title = document.createElement("h3");
      title.textContent = group === undefined ? drawn.title : `${key.title} ${group === null ? key.absent : key.categories[group]}`;
      box.append(title, svg);
      charts.push(box);
    }
    if (!charts.length) {
      const none = document.createElement("p");
      none.className = "small";
      none.textContent = "None of the points shown has this curve.";
      charts.push(none);
    }
    holder.replaceChildren(...charts);
  };

  // --- the maps and the table, which exist without scripts ---
  /** @type {any[]} */
  const figures = [...document.querySelectorAll("#maps figure")];
  const sortBy = (head) => {
    const which = Number(head.dataset.axis);
    const axis = axes[which];
    const value = (place) => (which === -1 ? points[place].point : which === -2 ? points[place].done : axis.values[place]);
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : axis?.better === "max";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const order = [...rows.keys()].sort((a, b) => {
      const [va, vb] = [value(a), value(b)];
      if (va == null || vb == null) return Number(va == null) - Number(vb == null) || a - b;
      return (down ? vb - va : va - vb) || a - b;
    });
    body.append(...order.map((place) => rows.get(place) ?? ""));
  };
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sortBy(head));
  }
  for (const [place, row] of rows) {
    const head = row.cells[0];
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "false");
    button.title = `Mark point ${points[place].point}`;
    if (head.firstChild) button.append(head.firstChild);
    head.prepend(button);
    row.addEventListener("click", (event) => { if (!isInside(event, "a")) choose(place); });
  }
  for (const figure of figures) figure.querySelector("button").addEventListener("click", () => choose(Number(figure.dataset.place)));

  // --- together ---
  const point = (place, event) => {
    showTip(place, event);
    if (place === pointed) return;
    pointed = place;
    scene.mark();
    scatter?.mark();
  };
  const choose = (place) => {
    chosen = place === chosen ? null : place;
    scene.mark();
    scatter?.mark();
    drawCourses();
    for (const [which, row] of rows) {
      row.classList.toggle("chosen", which === chosen);
      row.cells[0].querySelector("button")?.setAttribute("aria-pressed", String(which === chosen));
    }
    for (const figure of figures) {
      const own = Number(figure.dataset.place) === chosen;
      figure.classList.toggle("chosen", own);
      figure.querySelector("button").setAttribute("aria-pressed", String(own));
    }
    at("chosen").hidden = chosen == null;
    if (chosen != null) {
      const { point: number, done, lost, runs } = points[chosen];
      at("chosen-name").textContent = `Point ${number}`;
      at("chosen-settings").textContent = settingsOf(chosen).join(" · ");
      at("chosen-measures").textContent = done ? measuresOf(chosen, data.wanted.map((k) => axes[k])).join(" · ") : "No trial of this point is done.";
      const links = runs.map(([repeat, address]) => {
        const link = document.createElement("a");
        link.href = address;
        link.textContent = `repeat ${repeat}`;
        return link;
      });
      at("chosen-runs").replaceChildren(links.length ? "Open report: " : "No report is available. ", ...links.flatMap((link) => [link, " "]), lost ? ` ${lost} not done. ` : "");
    }
    history.replaceState(null, "", chosen == null ? "#" : `#point=${points[chosen].point}`);
  };
  let waiting = false;
  const soon = () => { // while dragging, draw only what is fast
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; filter(false); });
  };
  const filter = (settled = true) => {
    kept = within();
    const left = kept.filter(Boolean).length;
    scene.filter();
    scatter?.filter();
    at("kept").textContent = left === points.length ? `All ${count.format(left)} points` : `${count.format(left)} of ${count.format(points.length)} points`;
    at("all").hidden = !brushes.size;
    for (const figure of figures) figure.classList.toggle("off", !kept[figure.dataset.place]);
    if (!settled) return;
    for (const [place, row] of rows) row.hidden = !kept[place];
    at("listed").textContent = left === points.length ? "" : `${count.format(left)} of ${count.format(points.length)} points match the filter`;
    drawCourses();
  };
  const drawAll = () => {
    drawParallel();
    if (across) drawScatter();
    filter();
    scene.mark();
    scatter?.mark();
  };

  for (const element of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".scripted"))) element.hidden = false;
  const colour = at("colour");
  const boxes = [...at("axes").querySelectorAll("input")];
  const readAxes = () => {
    shown = boxes.filter((box) => box.checked).map((box) => Number(box.value));
    for (const which of brushes.keys()) if (!shown.includes(which)) brushes.delete(which); // an axis that is not shown does not filter
  };
  for (const box of boxes) {
    box.checked = shown.includes(Number(box.value));
    box.addEventListener("change", () => { readAxes(); drawAll(); });
  }
  readAxes();
  colour.addEventListener("change", () => { colourBy(colour.value); drawAll(); });
  for (const select of [across, upwards]) select?.addEventListener("change", () => { drawScatter(); scatter.filter(); scatter.mark(); });
  if (course) {
    const option = (text, value) => facet.append(new Option(text, value));
    for (const axis of facets) option(axis.title, axes.indexOf(axis));
    option("– none, one chart –", -1);
    for (const select of [course, facet]) select.addEventListener("change", drawCourses);
  }
  at("all").addEventListener("click", () => { brushes.clear(); filter(); });
  at("unmark").addEventListener("click", () => choose(chosen));
  addEventListener("keydown", (event) => { if (event.key === "Escape" && chosen != null && !isInside(event, ".reach")) choose(chosen); });
  let width = 0;
  new ResizeObserver(() => {
    if (parallel.clientWidth === width) return;
    width = parallel.clientWidth;
    drawAll();
  }).observe(parallel);
  addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details")) details.open = true; });

  colourBy(colour.value);
  width = parallel.clientWidth;
  drawAll();
  const match = /^#point=(\d+)$/.exec(location.hash);
  const named = match ? points.findIndex((one) => one.point === Number(match[1])) : -1;
  if (named >= 0) choose(named);
  document.documentElement.dataset.ready = "true";
})();
