// A table: see rows.js.

export default function ({ parentElement, data }) {
  drawTable(root(parentElement), data);
}
