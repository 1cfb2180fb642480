// Traffic lights: what they stand for is said in words too.
// data: {title, lights: [{name, level, text, meaning, address}]}

export default function ({ parentElement, data }) {
  root(parentElement).replaceChildren(
    make("h2", {}, data.title),
    make("ul", { class: "lights" }, ...data.lights.map((light) =>
      make("li", { title: light.meaning }, make("span", { class: `light ${light.level}` }, link(light.name, light.address)),
        make("span", { class: "reading" }, light.text), make("span", { class: "note" }, light.meaning)))));
}
