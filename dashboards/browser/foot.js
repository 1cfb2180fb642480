// What stands below a plot: in words what it shows, and its rows as a table, CSV and SQL.
// data: {words, seen: whether the words are for everybody, or for who can't see the plot, table: as element `table`}

export default function ({ parentElement, data }) {
  const own = root(parentElement);
  const open = own.querySelector("details.rows")?.open ?? false;
  const details = make("details", { class: "rows" }, make("summary", { class: "action" }, "Table, CSV, SQL"));
  const inside = make("div", {});
  details.append(inside);
  const fill = () => { if (details.open && !inside.hasChildNodes()) drawTable(inside, data.table); };
  details.addEventListener("toggle", fill);
  details.open = open;
  own.replaceChildren(make("p", { class: data.seen ? "note" : "unseen" }, data.words), details);
  fill();
  // The words stand for the plot, whenever it is drawn: its hundreds of marks would only be in the way of who listens.
  const block = parentElement.host.closest("[data-testid=stVerticalBlock]");
  const hide = () => {
    for (const plot of block.querySelectorAll("[data-testid=stVegaLiteChart]:not([aria-hidden])")) plot.setAttribute("aria-hidden", "true");
  };
  hide();
  const observer = new MutationObserver(hide);
  observer.observe(block, { childList: true, subtree: true });
  return () => observer.disconnect();
}
