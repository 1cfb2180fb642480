// The navigation: links to all pages in the same time range, and the search.
// data: {groups: [{title, pages: [{title, address, here, count}]}], search: {address, q}}

export default function ({ parentElement, data }) {
  const own = root(parentElement);
  const field = own.querySelector("input") ?? make("input", { type: "search", name: "q", placeholder: "Search", "aria-label": "Search for clients, groups, topics and more" });
  if (document.activeElement !== field) field.value = data.search.q;
  const find = (event) => {
    event.preventDefault();
    const address = new URL(data.search.address, document.baseURI);
    address.searchParams.set("q", field.value);
    go(address.href);
  };
  const form = own.querySelector("form") ?? make("form", { role: "search" }, field);
  form.onsubmit = find;
  const groups = data.groups.map((group) =>
    make("div", {}, group.title ? make("p", { class: "group", id: `nav-${group.title}` }, group.title) : null,
      make("ul", { "aria-label": group.title || "Start" }, ...group.pages.map((page) =>
        make("li", {}, link(page.title, page.address, { "aria-current": page.here ? "page" : null }),
          page.count ? make("span", { class: "badge", title: page.meaning }, page.count) : null)))));
  const nav = make("nav", { "aria-label": "Pages" }, ...groups);
  if (!form.isConnected) own.append(form);
  own.querySelector("nav")?.remove();
  own.append(nav);
}
