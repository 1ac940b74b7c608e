// Pictures in SVG, drawn at the width they have. Each has a name for a screen reader, and the same
// numbers as a table.

import { h, number, refill, s, table } from "./dom.js";

export class Chart {
  constructor(label, draw) {
    this.draw = draw;
    this.frame = h("div", { class: "drawing" });
    this.caption = h("figcaption", {}, label);
    this.more = h("div");
    this.element = h(
      "figure",
      {},
      this.caption,
      this.frame,
      h("details", {}, h("summary", {}, "As a table"), this.more),
    );
    this.data = null;
    this.width = 0;
    this.more.parentElement.addEventListener("toggle", () => this.fillTable());
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.render();
      }
    }).observe(this.frame);
  }

  set(data) {
    this.data = data;
    this.render();
  }

  render() {
    if (!this.data || !this.width) return;
    const { picture, rows } = this.draw(this.data, this.width);
    this.rows = rows;
    refill(this.frame, picture);
    this.fillTable();
  }

  fillTable() {
    if (!this.more.parentElement.open || !this.rows) return;
    const [heads, ...rows] = this.rows;
    refill(this.more, table(this.caption.textContent, heads, rows));
  }
}

function ticks(low, high, most = 5) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((each) => each >= rough);
  const found = [];
  for (let x = Math.ceil(low / step) * step; x <= high + step * 1e-9; x += step) found.push(x);
  return found;
}

// Lines of [x, y]: {series: [{name, points, look}], x: label, y: label, square, fromZero}.
export function lines(data, width) {
  const left = 52,
    right = 12,
    top = 10,
    bottom = 36;
  const height = data.height || Math.round(Math.min(260, Math.max(170, width * 0.42)));
  const all = data.series.flatMap((one) => one.points.filter((p) => p[1] !== null));
  if (!all.length)
    return { picture: h("p", { class: "quiet" }, data.empty || "Nothing yet."), rows: null };
  const xs = all.map((p) => p[0]),
    ys = all.map((p) => p[1]);
  const fixed = data.range;
  const [x0, x1] = fixed ? [0, 1] : [Math.min(...xs), Math.max(...xs, Math.min(...xs) + 1)];
  let [y0, y1] = fixed ? [0, 1] : [Math.min(...ys), Math.max(...ys)];
  if (y0 === y1) {
    y0 -= 0.5 * (Math.abs(y0) || 1);
    y1 += 0.5 * (Math.abs(y1) || 1);
  }
  const X = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const Y = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
  const label = data.series
    .map((one) => {
      const last = one.points.filter((p) => p[1] !== null).at(-1);
      return last ? `${one.name}: ${one.points.length} points, last ${number(last[1])}` : one.name;
    })
    .join("; ");
  const picture = s("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": label,
  });
  for (const y of ticks(y0, y1, 4)) {
    picture.append(
      s("line", { class: "grid", x1: left, x2: width - right, y1: Y(y), y2: Y(y) }),
      s("text", { class: "tick end", x: left - 6, y: Y(y) + 4 }, number(y, 3)),
    );
  }
  for (const x of ticks(x0, x1, Math.min(8, Math.floor(width / 70)))) {
    picture.append(
      s("text", { class: "tick middle", x: X(x), y: height - bottom + 16 }, number(x, 3)),
    );
  }
  picture.append(
    s("line", {
      class: "axis",
      x1: left,
      x2: width - right,
      y1: height - bottom,
      y2: height - bottom,
    }),
  );
  picture.append(
    s("text", { class: "tick middle", x: (left + width - right) / 2, y: height - 4 }, data.x),
  );
  if (data.diagonal)
    picture.append(s("line", { class: "diagonal", x1: X(0), y1: Y(0), x2: X(1), y2: Y(1) }));
  for (const mark of data.marks || []) {
    picture.append(
      s("line", { class: "mark", x1: X(mark.x), x2: X(mark.x), y1: top, y2: height - bottom }),
      s(
        "text",
        {
          class: `tick ${X(mark.x) > width / 2 ? "end" : ""}`,
          x: X(mark.x) + (X(mark.x) > width / 2 ? -5 : 5),
          y: top + 10,
        },
        mark.text,
      ),
    );
  }
  data.series.forEach((one, k) => {
    const drawn = one.points.filter((p) => p[1] !== null);
    const path = drawn
      .map((p, i) => `${i ? "L" : "M"}${X(p[0]).toFixed(1)} ${Y(p[1]).toFixed(1)}`)
      .join("");
    picture.append(s("path", { class: `curve ${one.look || `series${k}`}`, d: path }));
    if (drawn.length < 40) {
      for (const p of drawn)
        picture.append(
          s("circle", {
            class: `dot ${one.look || `series${k}`}`,
            cx: X(p[0]),
            cy: Y(p[1]),
            r: 2.5,
          }),
        );
    }
  });
  const legend =
    data.series.length < 2 && !data.legend
      ? null
      : h(
          "ul",
          { class: "legend" },
          data.series.map((one, k) =>
            h(
              "li",
              {},
              h("span", { class: `swatch ${one.look || `series${k}`}`, "aria-hidden": "true" }),
              one.name,
            ),
          ),
        );
  const byX = new Map();
  data.series.forEach((one, k) =>
    one.points.forEach(([x, y]) => {
      if (!byX.has(x))
        byX.set(
          x,
          data.series.map(() => "–"),
        );
      byX.get(x)[k] = y === null ? "–" : number(y, 6);
    }),
  );
  const rows = [
    [data.x, ...data.series.map((one) => one.name)],
    ...[...byX].slice(-400).map(([x, ys2]) => [number(x, 6), ...ys2]),
  ];
  return { picture: h("div", {}, picture, legend), rows };
}
