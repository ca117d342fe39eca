// @ts-check
// Search for a row by name or for rows by value. Matches are listed, and Enter takes the first.

const MOST_OFFERS = 8;

const offersFor = (atlas, words) => {
  const sought = words.trim().toLowerCase();
  if (!sought) return [];
  const offers = [];
  const row = atlas.ids.find(words.trim());
  if (row >= 0) offers.push({ text: `row ${words.trim()}`, take: () => atlas.chooseRows([row]) });
  for (const column of atlas.columns) {
    if (column.names) {
      const names = column.names.map((name) => name.toLowerCase());
      const rank = (name) => (name === sought ? 0 : name.startsWith(sought) ? 1 : 2);
      const found = [...names.keys()].filter((code) => names[code].includes(sought)).sort((a, b) => rank(names[a]) - rank(names[b]));
      const tally = found.length && atlas.tallyOf(column);
      for (const code of found.slice(0, 4)) {
        offers.push({ exact: rank(names[code]), text: `${column.title}: ${column.names[code]}`, rows: tally[code], take: () => atlas.chooseCodes(column, new Set([code])) });
      }
      if (found.length > 1) {
        const rows = found.reduce((sum, code) => sum + tally[code], 0);
        offers.push({ exact: 3, text: `${column.title}: all ${count.format(found.length)} with “${words.trim()}”`, rows, take: () => atlas.chooseCodes(column, new Set(found)) });
      }
    } else {
      const number = Number(sought.replace(/%$/, "")) / (column.share && sought.endsWith("%") ? 100 : 1);
      if (!Number.isFinite(number)) continue;
      const found = [];
      for (let i = 0; i < atlas.header.rows; i++) if (Math.abs(column.value(i) - number) <= 1e-6 * Math.abs(number)) found.push(i);
      if (found.length) offers.push({ exact: 1, text: `${column.title}: ${column.text(found[0])}`, rows: found.length, take: () => atlas.chooseRows(found) });
    }
  }
  return offers.sort((a, b) => (a.exact ?? -1) - (b.exact ?? -1)).slice(0, MOST_OFFERS);
};

const listenToSearch = (atlas, input, list) => {
  let offers = [];
  const take = (offer) => { offer.take(); list.hidden = true; };
  const offer = () => {
    offers = offersFor(atlas, input.value);
    list.replaceChildren(...offers.map((one) => {
      const button = make("button", { type: "button" }, make("span", { textContent: one.text }));
      if (one.rows) button.append(make("small", { textContent: `${count.format(one.rows)} row${one.rows > 1 ? "s" : ""}` }));
      button.addEventListener("click", () => take(one));
      return make("li", {}, button);
    }));
    if (input.value.trim() && !offers.length) list.append(make("li", { className: "none", textContent: "No match" }));
    list.hidden = !list.children.length;
  };
  input.addEventListener("input", offer);
  input.addEventListener("focus", offer);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && offers.length) { event.preventDefault(); take(offers[0]); }
    if (event.key === "Escape") { input.value = ""; offer(); atlas.clear(); }
    if (event.key === "ArrowDown") { event.preventDefault(); list.querySelector("button")?.focus(); }
  });
  list.addEventListener("keydown", (event) => {
    const buttons = [...list.querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
    if (event.key === "ArrowDown") { event.preventDefault(); buttons[Math.min(buttons.length - 1, at + 1)].focus(); }
    if (event.key === "ArrowUp") { event.preventDefault(); (buttons[at - 1] ?? input).focus(); }
    if (event.key === "Escape") { list.hidden = true; input.focus(); }
  });
  const field = input.closest(".search");
  document.addEventListener("pointerdown", (event) => { if (!field.contains(event.target)) list.hidden = true; });
  field.addEventListener("focusout", (event) => { if (!field.contains(event.relatedTarget)) list.hidden = true; });
};
