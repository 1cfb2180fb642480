// Helpers of the dashboard's own elements. Everything that comes from the lake is set as text, never as HTML.

/** An element with attributes, and children that are elements or texts. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Go to another page or state of this app, without loading the app again: Streamlit follows the browser's history. */
function go(address) {
  window.history.pushState({}, "", address);
  window.dispatchEvent(new PopStateEvent("popstate"));
  document.querySelector("[data-testid=stMain]")?.scrollTo(0, 0);
}

/** A real link, so it can be copied and opened in another tab; a plain click stays in the app. */
function link(text, address, attributes = {}) {
  return make(
    "a",
    {
      href: address,
      ...attributes,
      onclick: (event) => {
        if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        go(event.currentTarget.getAttribute("href"));
      },
    },
    text,
  );
}

const UNITS = [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e5, " k"]];

/** At most four significant digits: 56,789, 568 k, 8.9 M. */
function short(value, suffix = "") {
  if (value === 0) return `0${suffix && ` ${suffix}`}`;
  for (const [size, letter] of UNITS) {
    if (Math.abs(value) >= size) {
      const by = letter === " k" ? 1e3 : size;
      return `${(value / by).toLocaleString("en", { maximumSignificantDigits: 3 })}${letter}${suffix}`;
    }
  }
  const whole = Number.isInteger(value) || Math.abs(value) >= 1000;
  const options = whole ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return value.toLocaleString("en", options) + (suffix && ` ${suffix}`);
}

function bytes(value) {
  for (const [size, letter] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (Math.abs(value) >= size) return `${(value / size).toLocaleString("en", { maximumSignificantDigits: 3 })} ${letter}`;
  }
  return `${value.toLocaleString("en", { maximumSignificantDigits: 3 })} B`;
}

/** A duration in its two largest units: 40 ms, 3.2 s, 4 min 5 s, 3 d 4 h. */
function duration(ms) {
  const size = Math.abs(ms);
  const digits = { maximumSignificantDigits: 3 };
  if (size < 1000) return `${ms.toLocaleString("en", digits)} ms`;
  if (size < 59_950) return `${(ms / 1000).toLocaleString("en", digits)} s`;
  const [large, long, small, brief] =
    size >= 86_400_000 ? [86_400_000, "d", 3_600_000, "h"] : size >= 3_600_000 ? [3_600_000, "h", 60_000, "min"] : [60_000, "min", 1000, "s"];
  const whole = Math.round(size / small);
  const rest = whole % (large / small);
  return `${ms < 0 ? "-" : ""}${Math.floor((whole * small) / large).toLocaleString("en")} ${long}${rest ? ` ${rest} ${brief}` : ""}`;
}

/** Copy a text; a button says for two seconds that it is copied. */
function copyButton(label, text) {
  const button = make("button", { type: "button", class: "action" }, label);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed here: select and copy it";
    }
    setTimeout(() => (button.textContent = label), 2000);
  });
  return button;
}

/** Save a text as a file. */
function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const anchor = make("a", { href: url, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** The element that a component draws into; what it had is replaced at once. */
function root(parent) {
  let own = [...parent.children].find((child) => child.classList.contains("root")); // a shadow root has no :scope
  if (!own) {
    own = make("div", { class: "root" });
    parent.append(own);
  }
  return own;
}
