// What is known of a page's subject, each name a link.
// data: {title, facts: [{name, values: [{text, address}]}]}

export default function ({ parentElement, data }) {
  const several = (values) => values.flatMap((value, index) => [index ? ", " : "", value.address ? link(value.text, value.address) : value.text]);
  root(parentElement).replaceChildren(
    data.title ? make("h2", {}, data.title) : "",
    make("dl", {}, ...data.facts.flatMap((fact) => [make("dt", {}, fact.name), make("dd", {}, ...several(fact.values))])));
}
