// What every page says first: which lake and cluster, how new it is, what is selected.
// data: {level, light, old, facts: [{name, text}], chips: [{name, value, address}], clear, permalink}

export default function ({ parentElement, data }) {
  const own = root(parentElement);
  const parts = [];
  if (data.old) parts.push(make("p", { class: "banner", role: "status" }, make("strong", {}, "Old data. "), data.old));
  parts.push(make("div", { class: "facts" },
    make("span", { class: `light ${data.level}` }, data.light),
    ...data.facts.map((fact) => make("span", { title: fact.title ?? null }, make("span", { class: "name" }, `${fact.name} `), fact.text)),
    data.permalink ? make("span", { class: "actions" }, copyButton("Copy a permalink", new URL(data.permalink, document.baseURI).href),
      make("button", { type: "button", class: "action", onclick: () => window.print() }, "Print")) : null));
  if (data.chips.length) {
    parts.push(make("ul", { class: "chips", "aria-label": "Filters" },
      ...data.chips.map((chip) => make("li", {}, make("span", { class: "name" }, `${chip.name}: `), make("strong", {}, chip.value), " ",
        link("×", chip.address, { "aria-label": `Remove the filter ${chip.name} ${chip.value}`, class: "remove" }))),
      data.chips.length > 1 ? make("li", { class: "bare" }, link("Clear all", data.clear)) : ""));
  }
  own.replaceChildren(...parts.filter(Boolean));
}
