// A table whose names are links, with what can be done with it: sort, more rows, CSV, its SQL. Elements `table` and `foot`
// draw it.
// data: {title, note, none, level, columns: [{label, kind, values, links}], severity, sql, file, more, unheaded}

const STEP = 50;
const states = new WeakMap();
const NUMERIC = new Set(["number", "ms", "bytes", "percent"]);

const SHOWN = {
  number: (value) => short(value),
  ms: duration,
  bytes,
  percent: (value) => `${short(value)} %`,
  time: (value) => new Date(value).toISOString().replace("T", " ").slice(0, 19),
  yes: (value) => (value ? "yes" : "no"),
  text: String,
};

function cellText(column, row) {
  const value = column.values[row];
  return value === null || value === undefined ? "–" : SHOWN[column.kind](value);
}

function cell(column, row) {
  const value = column.values[row];
  const text = cellText(column, row);
  const address = column.links?.[row];
  const exact = NUMERIC.has(column.kind) && value !== null ? { title: String(value) } : {};
  const inside = address ? link(text, address) : column.kind === "severity" ? make("span", { class: `severity ${value}` }, text) : text;
  return [inside, { "data-label": column.label, class: NUMERIC.has(column.kind) ? "number" : column.wide ? "wide" : null, ...exact }];
}
SHOWN.severity = String;

function order(data, state) {
  const rows = [...Array(data.columns[0]?.values.length ?? 0).keys()];
  if (state.by === null) return rows;
  const values = data.columns[state.by].values;
  const missing = (value) => value === null || value === undefined;
  return rows.sort((a, b) => {
    if (missing(values[a]) || missing(values[b])) return missing(values[a]) - missing(values[b]) || a - b;
    const sign = state.down ? -1 : 1;
    return values[a] < values[b] ? -sign : values[a] > values[b] ? sign : a - b;
  });
}

function csv(data) {
  const quote = (value) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text))) text = `'${text}`; // a spreadsheet would run it
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const plain = (column, row) => (column.kind === "time" && column.values[row] !== null ? new Date(column.values[row]).toISOString() : column.values[row]);
  const lines = [data.columns.map((column) => quote(column.name))];
  for (const row of order(data, { by: null })) lines.push(data.columns.map((column) => quote(plain(column, row))));
  return lines.map((line) => line.join(",")).join("\r\n") + "\r\n";
}

function grid(data, state, again) {
  const head = data.columns.map((column, index) => {
    const now = state.by === index ? (state.down ? "descending" : "ascending") : null;
    const sort = () => {
      Object.assign(state, { by: index, down: state.by === index ? !state.down : NUMERIC.has(column.kind) });
      again(`th:nth-child(${index + 1}) button`);
    };
    const label = now ? `${column.label} ${state.down ? "↓" : "↑"}` : column.label;
    return make("th", { scope: "col", "aria-sort": now, class: NUMERIC.has(column.kind) ? "number" : null },
      make("button", { type: "button", onclick: sort }, label));
  });
  const body = order(data, state).slice(0, state.most).map((row) =>
    make("tr", {}, ...data.columns.map((column, index) => {
      const [inside, attributes] = cell(column, row);
      return index ? make("td", attributes, inside) : make("th", { scope: "row", ...attributes }, inside);
    })));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": data.title },
    make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
}

function actions(data, state, again) {
  const count = data.columns[0]?.values.length ?? 0;
  const parts = [];
  if (count > state.most) {
    const more = () => { state.most += 10 * STEP; again(".action"); };
    parts.push(make("button", { type: "button", class: "action", onclick: more }, `Show more of ${count.toLocaleString("en")} rows`));
  }
  if (count) parts.push(make("button", { type: "button", class: "action", onclick: () => save(`${data.file}.csv`, "text/csv", csv(data)) }, "CSV"));
  if (data.sql) parts.push(sqlOf(data));
  return parts.length ? make("div", { class: "actions" }, ...parts) : null;
}

function sqlOf(data) {
  return make("details", { class: "sql" }, make("summary", { class: "action" }, "SQL"),
    make("p", {}, "For telemetry-lake query: ", copyButton("Copy", data.sql)), make("pre", { tabindex: "0" }, data.sql));
}

function drawTable(own, data) {
  const state = states.get(own) ?? { by: null, down: false, most: STEP };
  states.set(own, state);
  const again = (focus) => {
    draw();
    own.querySelector(focus)?.focus();
  };
  const draw = () => {
    if (state.by !== null && state.by >= data.columns.length) state.by = null;
    const scroll = own.querySelector(".scroll");
    const [top, left] = [scroll?.scrollTop ?? 0, scroll?.scrollLeft ?? 0];
    const open = own.querySelector("details.sql")?.open ?? false;
    const rows = data.columns[0]?.values.length ?? 0;
    const parts = [
      data.unheaded ? null : make("h2", { title: data.note || null }, data.title),
      data.note && !data.unheaded ? make("p", { class: "note" }, data.note) : null,
      rows ? grid(data, state, again) : make("p", { class: "none" }, data.none),
      data.more ? make("p", { class: "note" }, data.more) : null,
      actions(data, state, again),
    ];
    own.replaceChildren(...parts.filter(Boolean));
    own.querySelector(".scroll")?.scrollTo(left, top);
    const details = own.querySelector("details.sql");
    if (details) details.open = open;
  };
  draw();
}
