// Bars, side by side or made of parts.

import { h, number, s } from "./dom.js";

// Bars from zero: {bars: [{name, beside, value, look}], unit(value)}; values may be negative.
export function bars(data, width) {
  const shown = data.bars;
  if (!shown.length)
    return { picture: h("p", { class: "quiet" }, data.empty || "Nothing yet."), rows: null };
  const narrow = width < 460;
  const named = narrow ? 0 : Math.min(230, Math.round(width * 0.36));
  const valued = 72,
    line = narrow ? 40 : 26;
  const least = Math.min(0, ...shown.map((bar) => bar.value));
  const most = Math.max(0, ...shown.map((bar) => bar.value), least + 1e-12);
  const room = width - named - valued;
  const X = (value) => named + ((value - least) / (most - least)) * room;
  const height = shown.length * line + 4;
  const words = data.unit || ((value) => number(value, 3));
  const picture = s("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": shown
      .slice(0, 6)
      .map((bar) => `${bar.name}: ${words(bar.value)}`)
      .join("; "),
  });
  shown.forEach((bar, k) => {
    const y = k * line,
      at = narrow ? y + 18 : y + 5,
      thick = 16;
    const from = Math.min(X(0), X(bar.value));
    const size = Math.max(1, Math.abs(X(bar.value) - X(0)));
    const name = bar.name.length > 34 ? `${bar.name.slice(0, 33)}…` : bar.name;
    picture.append(
      s(
        "text",
        {
          class: narrow ? "name" : "name end",
          x: narrow ? 0 : named - 8,
          y: narrow ? y + 13 : at + 12,
        },
        s("title", {}, bar.name),
        name,
        bar.beside ? s("tspan", { class: "beside" }, ` ${bar.beside}`) : null,
      ),
      s("rect", {
        class: `bar ${bar.look || ""}`,
        x: from,
        y: at,
        width: size,
        height: thick,
        rx: 3,
      }),
      s(
        "text",
        { class: "tick", x: Math.max(X(0), X(bar.value)) + 6, y: at + 12 },
        words(bar.value),
      ),
    );
  });
  if (least < 0)
    picture.append(s("line", { class: "axis", x1: X(0), x2: X(0), y1: 0, y2: height }));
  const rows = [
    ["name", ...(shown[0].beside ? ["of"] : []), "value"],
    ...shown.map((bar) => [bar.name, ...(shown[0].beside ? [bar.beside] : []), words(bar.value)]),
  ];
  return { picture, rows };
}

// Bars made of parts, one under the other: {stacks: [{name, parts: [{name, value, look}]}], unit}.
export function stacks(data, width) {
  const line = 46,
    valued = 78;
  const most = Math.max(
    ...data.stacks.map((one) => one.parts.reduce((sum, part) => sum + part.value, 0)),
    1e-12,
  );
  const height = data.stacks.length * line;
  const picture = s("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": data.stacks
      .map(
        (one) =>
          `${one.name}: ${one.parts.map((part) => `${part.name} ${data.unit(part.value)}`).join(", ")}`,
      )
      .join("; "),
  });
  data.stacks.forEach((one, k) => {
    let x = 0;
    picture.append(s("text", { class: "name", x: 0, y: k * line + 14 }, one.name));
    for (const part of one.parts) {
      const size = (part.value / most) * (width - valued);
      picture.append(
        s(
          "rect",
          { class: `bar ${part.look}`, x, y: k * line + 21, width: Math.max(0, size), height: 18 },
          s("title", {}, `${part.name}: ${data.unit(part.value)}`),
        ),
      );
      x += size;
    }
    picture.append(
      s(
        "text",
        { class: "tick", x: x + 6, y: k * line + 34 },
        one.total || data.unit(one.parts.reduce((sum, part) => sum + part.value, 0)),
      ),
    );
  });
  const kinds = new Map(
    data.stacks.flatMap((one) => one.parts.map((part) => [part.name, part.look])),
  );
  const legend = h(
    "ul",
    { class: "legend" },
    [...kinds].map(([name, look]) =>
      h("li", {}, h("span", { class: `swatch ${look}`, "aria-hidden": "true" }), name),
    ),
  );
  const names = [...kinds.keys()];
  const rows = [
    ["", ...names],
    ...data.stacks.map((one) => [
      one.name,
      ...names.map((name) => {
        const part = one.parts.find((each) => each.name === name);
        return part ? data.unit(part.value) : "–";
      }),
    ]),
  ];
  return { picture: h("div", {}, picture, legend), rows };
}
