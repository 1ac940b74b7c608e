// Elements and words. Text is always set as text: what others called their columns is never HTML.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

// Put other children in place of those that are there.
export function refill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// Set text only where it differs, so that nothing is read aloud or repainted in vain.
export function say(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

const grouped = new Intl.NumberFormat("en");
export const count = (n) => (n === null || n === undefined ? "–" : grouped.format(n));

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let k = 0;
  while (n >= 1000 && k < units.length - 1) {
    n /= 1000;
    k += 1;
  }
  return `${k === 0 || n >= 100 ? Math.round(n) : n.toPrecision(3)} ${units[k]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function number(x, digits = 4) {
  if (x === null || x === undefined) return "–";
  if (x !== 0 && (Math.abs(x) >= 1e6 || Math.abs(x) < 1e-3)) return x.toExponential(2);
  return String(Number(x.toPrecision(digits)));
}

const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
export const time = (iso) => (iso ? clock.format(new Date(iso)) : "–");
export function when(iso) {
  if (!iso) return "–";
  const then = new Date(iso);
  const today = then.toDateString() === new Date().toDateString();
  return today ? time(iso) : `${day.format(then)}, ${time(iso)}`;
}

export const STATES = {
  none: ["never trained", "idle"],
  trained: ["trained", "good"],
  starting: ["starting", "busy"],
  waiting: ["waiting for others", "busy"],
  running: ["running", "busy"],
  done: ["done", "good"],
  failed: ["failed", "bad"],
  stopped: ["stopped", "idle"],
  killed: ["ended without a word", "bad"],
};

export function chip(state, words) {
  const [usual, look] = STATES[state] || [state, "idle"];
  return h("span", { class: `chip ${look}` }, words || usual);
}

export function card(title, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

export function fact(label, value, beside) {
  return h(
    "div",
    { class: "fact" },
    h("dt", {}, label),
    h("dd", {}, value, beside ? h("small", {}, beside) : null),
  );
}

export function table(caption, heads, rows, look = "") {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      { class: look },
      h("caption", { class: "unseen" }, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head) => h("th", { scope: "col" }, head)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((cells) =>
          h(
            "tr",
            {},
            cells.map((cell, k) => (k === 0 ? h("th", { scope: "row" }, cell) : h("td", {}, cell))),
          ),
        ),
      ),
    ),
  );
}

// A colour for each participant, the same everywhere: by its place in the job.
export const hue = (names, name) => `owner${Math.max(0, names.indexOf(name)) % 8}`;
