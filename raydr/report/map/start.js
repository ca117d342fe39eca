// @ts-check
// Draw the first map as soon as its coordinates and colours are read, then the rest, and connect the page's controls.

// One picture of the visible maps, side by side, with their colour key.
const picture = (atlas) => {
  const style = getComputedStyle(document.body), panels = atlas.panels.filter((panel) => panel.ready);
  const ratio = panels[0].ratio, gap = 20 * ratio, line = 26 * ratio;
  const width = panels.reduce((sum, panel) => sum + panel.width + gap, gap);
  const height = Math.max(...panels.map((panel) => panel.height)) + 2 * gap + line;
  const canvas = make("canvas", { width, height }), context = canvas.getContext("2d");
  const text = (size, weight = 400) => { context.font = `${weight} ${size * ratio}px system-ui, sans-serif`; };
  const entries = atlas.categories ? atlas.categories.names.map((name, code) => [atlas.way.colours[code], name]) : [];
  // The key wraps, so lay it out first to find the height of the picture.
  text(13);
  const places = [];
  let x = gap, y = height;
  for (const [colour, name] of entries) {
    const wide = context.measureText(name).width + 30 * ratio;
    if (x + wide > width - gap && x > gap) { x = gap; y += line; }
    places.push([x, y, colour, name]);
    x += wide;
  }
  const scale = atlas.way && !atlas.categories;
  canvas.height = (places.length || scale ? y + line : height) + gap / 2;
  const ground = (name) => (atlas.printing ? "#ffffff" : style.getPropertyValue(name));
  context.fillStyle = ground("--ground");
  context.fillRect(0, 0, width, canvas.height);
  let left = gap;
  for (const panel of panels) {
    context.fillStyle = atlas.inked;
    text(15, 600);
    context.fillText(panel.entry.title, left, gap + line * 0.6);
    const top = gap + line;
    context.drawImage(panel.points, left, top);
    context.drawImage(panel.over, left, top);
    text(13, 600);
    context.textAlign = "center";
    context.lineJoin = "round";
    for (const tag of panel.names.hidden ? [] : panel.names.children) {
      if (tag.hidden) continue;
      const box = tag.getBoundingClientRect(), frame = panel.root.getBoundingClientRect();
      const at = [left + (box.x + box.width / 2 - frame.x) * ratio, top + (box.y + box.height / 2 - frame.y) * ratio + 5 * ratio];
      context.lineWidth = 4 * ratio;
      context.strokeStyle = ground("--panel");
      context.strokeText(tag.textContent, ...at);
      context.fillText(tag.textContent, ...at);
    }
    context.textAlign = "left";
    left += panel.width + gap;
  }
  text(13);
  for (const [px, py, colour, name] of places) {
    context.fillStyle = colour;
    context.beginPath();
    context.arc(px + 6 * ratio, py, 6 * ratio, 0, 2 * Math.PI);
    context.fill();
    context.fillStyle = atlas.inked;
    context.fillText(name, px + 18 * ratio, py + 4.5 * ratio);
  }
  if (scale) {
    const strip = context.createLinearGradient(gap, 0, gap + 240 * ratio, 0);
    atlas.header.ramp.forEach((colour, stop, stops) => strip.addColorStop(stop / (stops.length - 1), colour));
    context.fillStyle = strip;
    context.fillRect(gap, y - 8 * ratio, 240 * ratio, 10 * ratio);
    context.fillStyle = atlas.inked;
    const [low, high] = [...atlas.key.querySelectorAll(".scale span span")].map((mark) => mark.textContent).filter((_, at, all) => at === 0 || at === all.length - 1);
    context.fillText(`${atlas.way.by}: ${low} to ${high}`, gap + 252 * ratio, y + 1.5 * ratio);
  }
  return canvas;
};

const joinControls = (atlas) => {
  const { root, find } = atlas;
  const colour = find("[name=colour]");
  colour?.addEventListener("change", () => atlas.colourBy(Number(colour.value)));
  for (const input of root.querySelectorAll("[name=axes]")) {
    input.addEventListener("change", () => atlas.face(input.value.split(",").map(Number)));
  }
  // A finger that moves over a map scrolls the page by default.
  if (matchMedia("(pointer: coarse)").matches) find("[name=drag][value='']").checked = true;
  const drag = () => {
    atlas.mode = find("[name=drag]:checked").value;
    root.dataset.drag = atlas.mode;
  };
  for (const input of root.querySelectorAll("[name=drag]")) input.addEventListener("change", drag);
  drag();
  const click = (selector, act) => find(selector)?.addEventListener("click", act);
  click(".closer", () => atlas.zoom(1.5));
  click(".farther", () => atlas.zoom(1 / 1.5));
  click(".reset", () => atlas.reset());
  click(".clear", () => { atlas.clear(); atlas.panels[0].root.focus({ preventScroll: true }); });
  click(".naming", () => {
    atlas.naming = !atlas.named();
    find(".naming").setAttribute("aria-pressed", String(atlas.naming));
    atlas.redraw();
  });
  click(".save", () => picture(atlas).toBlob((blob) => save(blob, `${atlas.header.name}.png`)));
  for (const button of root.querySelectorAll("[data-panel]")) {
    button.addEventListener("click", async () => {
      const panel = atlas.panels.find((one) => one.entry.key === button.dataset.panel);
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      panel.root.closest("figure").hidden = !shown;
      find(".panes").dataset.shown = root.querySelectorAll("figure:not([hidden])").length;
      if (shown) await panel.load();
      for (const each of atlas.panels) each.resize();
      if (atlas.home) atlas.reset();
    });
  }
  atlas.key.addEventListener("click", (event) => {
    const button = event.target.closest("button"), column = atlas.categories;
    if (!button || !column) return;
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    const pressed = [...atlas.key.querySelectorAll("[aria-pressed=true]")];
    atlas.chooseCodes(column, new Set(pressed.map((one) => Number(one.dataset.code))), { fromKey: true });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => atlas.readTheme());
  // Print a picture of the maps: a canvas is cleared when printing changes its size.
  const print = (printing) => {
    atlas.printing = printing;
    atlas.readTheme();
    find(".printed").replaceChildren(...(printing && atlas.panels[0].ready ? [picture(atlas)] : []));
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
};

const start = async (root) => {
  /** @type {MapHeader} */
  const header = JSON.parse(/** @type {HTMLElement} */ (document.getElementById("map-header")).textContent);
  const atlas = new Atlas(root, header);
  const panes = new Map([...root.querySelectorAll(".pane")].map((pane) => [pane.dataset.key, pane]));
  atlas.panels = header.panels.map((entry) => new Panel(atlas, entry, panes.get(entry.key)));
  atlas.readTheme();
  root.dataset.drawn = "loading";
  const shown = atlas.panels.filter((panel) => !panel.root.closest("figure")?.hidden);
  const first = atlas.way ? [...new Set(atlas.way.columns)].filter((place) => place !== null) : [];
  await Promise.all([...shown.map((panel) => panel.load()), ...first.map((place) => atlas.read(place))]);
  atlas.showKey();
  for (const panel of shown) panel.draw();
  performance.mark("first picture");
  root.dataset.drawn = "map";
  await new Promise((rest) => setTimeout(rest));
  for (const place of header.columns.keys()) await atlas.read(place);
  atlas.ids = await readIds(header.ids, header.rows, atlas.order, atlas.drawn);
  atlas.table = new RowTable(atlas, root.querySelector(".chosen"));
  listenToSearch(atlas, atlas.find(".search input"), atlas.find(".offers"));
  joinControls(atlas);
  const colour = atlas.find("[name=colour]"); // a reloaded page may keep its controls
  if (colour && colour.value !== "0") await atlas.colourBy(Number(colour.value));
  const pair = atlas.find("[name=axes]:checked");
  if (pair && pair.value !== "0,1") pair.dispatchEvent(new Event("change"));
  atlas.say();
  document.documentElement.dataset.ready = "true";
};

for (const root of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".atlas"))) {
  start(root).catch((error) => {
    root.dataset.drawn = "failed";
    for (const failed of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll(".failed"))) failed.hidden = false;
    const pane = /** @type {HTMLElement} */ (root.querySelector(".pane"));
    pane.innerHTML = pane.querySelector("noscript")?.textContent ?? "";
    throw error;
  });
}
