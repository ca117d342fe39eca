"use strict";
// Draws the maps and joins them to the page's own controls: colour switch, key, selection.
(async () => {
  const maps = JSON.parse(document.getElementById("maps").textContent);
  await Bokeh.embed.embed_items(maps.docs, maps.items);
  const bokeh = Bokeh.documents.at(-1);
  const plots = bokeh.roots();
  const source = bokeh.get_model_by_name("rows");
  const keys = [...document.querySelectorAll(".key")];
  const status = document.getElementById("selection");
  const clear = document.getElementById("clear");
  const count = new Intl.NumberFormat("en-US");
  const codes = (way) => source.data[`${way.by}_code`];
  let current = maps.colourings[0];

  const colourBy = (by) => {
    current = maps.colourings.find((way) => way.by === by);
    source.data.colour = Array.from(codes(current), (code) => current.colours[code]);
    source.change.emit();
    for (const key of keys) key.hidden = key.dataset.by !== by;
    say();
  };

  const select = (way, chosen) => {
    const indices = [];
    if (chosen.size) codes(way).forEach((code, row) => { if (chosen.has(code)) indices.push(row); });
    source.selected.indices = indices;
  };

  // "312 of 1,797 rows highlighted: 8 (290), 3 (14), 5 (8)"
  const say = () => {
    const chosen = source.selected.indices;
    clear.hidden = chosen.length === 0;
    if (!chosen.length) { status.textContent = "No rows highlighted"; return; }
    const tally = new Map();
    for (const row of chosen) {
      const code = codes(current)[row];
      tally.set(code, (tally.get(code) ?? 0) + 1);
    }
    const most = [...tally].sort((a, b) => b[1] - a[1]);
    const named = most.slice(0, 3).map(([code, rows]) => `${current.names[code]} (${count.format(rows)})`);
    if (most.length > 3) named.push(`${count.format(most.length - 3)} more`);
    status.textContent = `${count.format(chosen.length)} of ${count.format(codes(current).length)} rows highlighted: ${named.join(", ")}`;
  };

  const pressed = (key) => [...key.querySelectorAll("[aria-pressed=true]")];
  let choosing = false;
  const choose = (way, chosen) => { choosing = true; select(way, chosen); choosing = false; };
  source.selected.properties.indices.change.connect(() => {
    // A selection drawn on a map is no longer what the key says.
    if (!choosing) for (const key of keys) for (const button of pressed(key)) button.setAttribute("aria-pressed", "false");
    say();
  });

  for (const key of keys) {
    const way = maps.colourings.find((one) => one.by === key.dataset.by);
    key.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      choose(way, new Set(pressed(key).map((one) => Number(one.dataset.code))));
    });
    key.querySelector("input")?.addEventListener("input", (event) => {
      const sought = event.target.value.trim().toLowerCase();
      const exact = way.names.findIndex((name) => name.toLowerCase() === sought);
      const found = exact >= 0 ? [exact] : [...way.names.keys()].filter((code) => way.names[code].toLowerCase().includes(sought));
      choose(way, new Set(sought ? found : []));
    });
  }
  clear.addEventListener("click", () => { source.selected.indices = []; });
  for (const input of document.querySelectorAll("[name=colour]")) {
    input.addEventListener("change", () => colourBy(input.value));
  }

  // Of maps in three dimensions two axes are drawn: the columns x and y take their turns.
  const axes = maps.panels.map((panel) => [panel, ["x", "y", "z"].map((axis) => source.data[`${panel}_${axis}`])]);
  const showAxes = (pair) => {
    const [x, y] = pair.split(",");
    for (const [panel, along] of axes) {
      source.data[`${panel}_x`] = along[x];
      source.data[`${panel}_y`] = along[y];
    }
    source.change.emit();
  };
  for (const input of document.querySelectorAll("[name=axes]")) {
    input.addEventListener("change", () => showAxes(input.value));
  }

  const tool = (plot, type) => plot.toolbar.tools.find((one) => one.type === type);
  const dragTo = (type) => {
    for (const plot of plots) {
      for (const one of ["LassoSelectTool", "PanTool", "BoxZoomTool"]) tool(plot, one).active = one === type;
    }
  };
  for (const input of document.querySelectorAll("[name=drag]")) {
    input.addEventListener("change", () => dragTo(input.value));
  }
  // A finger that drags over a map must first of all be able to scroll the page.
  if (matchMedia("(pointer: coarse)").matches) document.querySelector("[name=drag][value='']").checked = true;
  dragTo(document.querySelector("[name=drag]:checked").value);
  for (const button of document.querySelectorAll("[data-tool]")) {
    button.addEventListener("click", () => { for (const plot of plots) tool(plot, button.dataset.tool).do.emit(); });
  }
  addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details")) details.open = true; });

  // Names travel once, not once per row; the hover text needs them on the rows.
  for (const way of maps.colourings) source.data[way.by] = Array.from(codes(way), (code) => way.names[code]);
  const kept = document.querySelector("[name=colour]:checked"); // a reloaded page may keep its switch
  if (kept && kept.value !== current.by) colourBy(kept.value);
  const pair = document.querySelector("[name=axes]:checked");
  if (pair && pair.value !== "0,1") showAxes(pair.value);
  document.documentElement.dataset.ready = "true";
})();
