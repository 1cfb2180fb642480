// One finding: what is wrong, how it is known, what to do, and where to go on.
// data: {severity, title, level, evidence, advice, setting: {of, text}, facts: [{name, text, address}], why}

export default function ({ parentElement, data }) {
  const facts = data.facts.map((fact) => [make("dt", {}, fact.name), make("dd", {}, fact.address ? link(fact.text, fact.address) : fact.text)]).flat();
  const setting = data.setting
    ? make("div", { class: "setting" }, make("p", { class: "name" }, data.setting.of), make("pre", { tabindex: "0" }, data.setting.text), copyButton("Copy the setting", data.setting.text))
    : null;
  root(parentElement).replaceChildren(
    make("article", { class: `finding ${data.severity}`, "aria-label": data.title },
      make("h2", {}, make("span", { class: `severity ${data.severity}` }, data.severity), ` ${data.title}`),
      make("p", { class: "evidence" }, data.evidence),
      make("p", {}, make("strong", {}, "What to do: "), data.advice),
      setting ?? "",
      make("dl", {}, ...facts),
      data.why ? make("p", { class: "note" }, data.why) : ""));
}
