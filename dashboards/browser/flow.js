// A flow diagram of three columns: boxes with links, and ribbons between them; where there is no room, a list by topic.
// data: {headings, lacks: [what is said without writers, without readers], height, columns: [[{name, more, address, amount, severity, y, height, unwritten, unread}]],
//   ribbons: [{column, left, right, left_y, right_y, width, severity, known, title}],
//   list: [{topic: as in columns, writers, readers: {shown: [{name, more, address, amount, severity, share}], rest}}], rest}

const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** The name of a box, after the sign and the word of its worst finding; a link if it has a page. `unseen`: what isn't shown beside it. */
function named(box, unseen = "") {
  const text = [box.severity ? make("span", { class: "unseen" }, `${box.severity}: `) : "", box.name];
  if (unseen) text.push(make("span", { class: "unseen" }, ` (${unseen})`));
  const attributes = { class: `end ${box.severity ? `severity ${box.severity}` : ""}`, title: [box.name, box.more].filter(Boolean).join(", ") };
  if (!box.address) return make("span", attributes, ...text);
  const anchor = link("", box.address, attributes);
  anchor.append(...text);
  return anchor;
}

/** The ribbons from one column to the next: as wide as the gap, whatever that is, and as high as the diagram. */
function ribbons(data, column) {
  const svg = shape("svg", { class: `ribbons of-${column}`, viewBox: `0 0 100 ${data.height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const ribbon of data.ribbons.filter((each) => each.column === column)) {
    const [one, other, width] = [ribbon.left_y, ribbon.right_y, ribbon.width];
    const path = `M0 ${one}C50 ${one} 50 ${other} 100 ${other}V${other + width}C50 ${other + width} 50 ${one + width} 0 ${one + width}Z`;
    svg.append(shape("path", {
      d: path, class: `${ribbon.severity ?? ""}${ribbon.known ? "" : " unknown"}`, "vector-effect": "non-scaling-stroke",
      "data-left": `${column}-${ribbon.left}`, "data-right": `${column + 1}-${ribbon.right}`,
    }, shape("title", {}, ribbon.title)));
  }
  return svg;
}

function boxes(data, column) {
  const hasRoom = (box) => box.height > 44;
  const list = data.columns[column].map((box, place) =>
    make("li", { class: box.severity, "data-box": `${column}-${place}`, style: `top:${box.y}px;height:${box.height}px` },
      named(box, hasRoom(box) ? "" : box.more), box.more && hasRoom(box) ? make("span", { class: "more" }, box.more) : "", make("span", { class: "amount" }, box.amount),
      box.unwritten ? make("span", { class: "lacks before" }, data.lacks[0]) : "",
      box.unread ? make("span", { class: "lacks after" }, data.lacks[1]) : ""));
  return make("ul", { class: `boxes of-${column}`, "aria-label": data.headings[column] }, ...list);
}

/** Show the ribbons of a box while it is pointed at, or its link has the focus. */
function lights(map) {
  const light = (box) => {
    for (const path of map.querySelectorAll("path")) path.classList.toggle("lit", [path.dataset.left, path.dataset.right].includes(box));
  };
  for (const kind of ["mouseover", "focusin"]) map.addEventListener(kind, (event) => light(event.target.closest("[data-box]")?.dataset.box));
  // Where the focus goes to another box, its focusin comes next.
  for (const kind of ["mouseleave", "focusout"]) map.addEventListener(kind, () => light());
}

/** Writers or readers of a topic: name and amount, and below them a bar. */
function side(title, none, of) {
  if (!of.shown.length) return [make("p", { class: "name" }, none)];
  const items = of.shown.map((each) =>
    make("li", {}, make("span", {}, named(each), each.more ? make("span", { class: "note" }, ` ${each.more}`) : ""), make("span", { class: "amount" }, each.amount),
      make("span", { class: "bar" }, make("span", { class: each.severity, style: `width:${each.share}%` }))));
  if (of.rest) items.push(make("li", {}, `and ${of.rest.toLocaleString("en")} more`));
  return [make("p", { class: "name" }, title), make("ul", {}, ...items)];
}

function byTopic(data) {
  const topics = data.list.map((each) =>
    make("li", {}, named(each.topic), ...side("written by", data.lacks[0], each.writers), ...side("read by", data.lacks[1], each.readers)));
  if (data.rest) topics.push(make("li", {}, `and ${data.rest.toLocaleString("en")} more: see the table`));
  return make("ul", { class: "by-topic", "aria-label": "Topics with their writers and readers" }, ...topics);
}

export default function ({ parentElement, data }) {
  const map = make("div", { class: "map" }, make("div", { class: "headings", "aria-hidden": "true" }, ...data.headings.map((text) => make("span", {}, text))),
    make("div", { class: "flow", style: `height:${data.height}px` }, ribbons(data, 0), ribbons(data, 1), ...[0, 1, 2].map((column) => boxes(data, column))));
  lights(map);
  root(parentElement).replaceChildren(map, byTopic(data));
}
