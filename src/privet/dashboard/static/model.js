// The model as far as this participant sees it: own thresholds, others' features by name.

import { card, fact, h, hue, number, refill, s, say } from "./dom.js";
import { bars } from "./bars.js";
import { Chart, lines } from "./charts.js";
import { lastTraining, state } from "./store.js";
import { reasons } from "./reasons.js";
import { get } from "./wire.js";

const AT_ONCE = 12;
const SHOWN = 15;
const CURVES = {
  roc: ["ROC", "false positive rate", true],
  precision_recall: ["Precision and recall", "recall", false],
  calibration: ["Calibration", "predicted", true],
  ks: ["Kolmogorov–Smirnov", "threshold", false],
};
const percent = (x) => `${(100 * x).toFixed(1)} %`;

export function model(known) {
  const body = h("div", { class: "grid" });
  const element = h("div", {}, body);
  let shown = null;

  async function load() {
    shown = known.trained;
    if (!known.trained) {
      refill(
        body,
        card("No model yet", h("p", {}, "It is there when a training has come to its end.")),
      );
      return;
    }
    try {
      const part = await get(`api/jobs/${encodeURIComponent(known.name)}/model`);
      const [first, checked] = [importances(part, known), validation(known)];
      if (checked.classList.contains("wide")) first.classList.add("wide");
      refill(body, first, checked, tables(part, known), reasons(known));
    } catch (error) {
      refill(body, card("No model", h("p", { class: "bad" }, error.message)));
    }
  }
  load();
  return {
    element,
    update() {
      const now = state.overview.jobs.find((each) => each.name === known.name);
      if (now && now.trained !== shown) {
        known = now;
        load();
      }
    },
  };
}

function importances(part, known) {
  const names = known.participants.map((each) => each.name);
  const kinds = [["By tests", part.importances, "the share of all tests"]];
  if (part.importances_by_gain)
    kinds.push(["By gain", part.importances_by_gain, "the share of all gains"]);
  const chart = new Chart("Importance of features", bars);
  const buttons = kinds.map(([title, shares], k) =>
    h(
      "button",
      {
        "aria-pressed": String(k === 0),
        onclick() {
          buttons.forEach((each) => each.setAttribute("aria-pressed", String(each === this)));
          set(shares);
        },
      },
      title,
    ),
  );
  function set(shares) {
    chart.set({
      unit: percent,
      bars: shares.slice(0, SHOWN).map((each) => ({
        name: each.feature,
        beside: each.owner,
        value: each.importance,
        look: hue(names, each.owner),
      })),
    });
  }
  set(kinds[0][1]);
  return card(
    "Importances",
    kinds.length > 1 ? h("div", { class: "choice", role: "group" }, buttons) : null,
    chart.element,
    part.importances.length > SHOWN
      ? h(
          "p",
          { class: "quiet" },
          `The first ${SHOWN} of ${part.importances.length} tested features.`,
        )
      : null,
  );
}

function tables(part, known) {
  const names = known.participants.map((each) => each.name);
  const grid = h("div", { class: "tables" });
  const more = h("button", { onclick: add });
  let drawn = 0;
  function add() {
    const next = part.tables.slice(drawn, drawn + AT_ONCE);
    next.forEach((tests, k) => grid.append(drawnTable(drawn + k + 1, tests, names)));
    drawn += next.length;
    more.hidden = drawn >= part.tables.length;
    say(
      more,
      `Show ${Math.min(AT_ONCE, part.tables.length - drawn)} more of ${part.tables.length}`,
    );
  }
  add();
  const legend = h(
    "ul",
    { class: "legend" },
    names.map((name) =>
      h(
        "li",
        {},
        h("span", { class: `swatch ${hue(names, name)}`, "aria-hidden": "true" }),
        name,
        name === state.overview.party ? " (you: thresholds shown)" : "",
      ),
    ),
  );
  const element = card(
    "Tables",
    h(
      "p",
      { class: "quiet" },
      "All samples of a level pass the same test. You see the thresholds of your own features; leaf values are shared, and nobody sees them.",
    ),
    legend,
    grid,
    more,
  );
  element.classList.add("wide");
  return element;
}

// A table as its levels: at level k the samples are in 2^k nodes, each split in two.
function drawnTable(place, tests, names) {
  const width = 240,
    row = 9;
  const picture = s("svg", {
    viewBox: `0 0 ${width} ${tests.length * row}`,
    class: "levels",
    "aria-hidden": "true",
  });
  tests.forEach((test, level) => {
    const cells = 2 ** Math.min(level + 1, 7),
      size = width / cells;
    for (let k = 0; k < cells; k += 1) {
      picture.append(
        s("rect", {
          x: k * size + 0.5,
          y: level * row,
          width: Math.max(0.6, size - 1),
          height: row - 2,
          rx: 1.5,
          class: `bar ${hue(names, test.owner)} ${k % 2 ? "faint" : ""}`,
        }),
      );
    }
  });
  return h(
    "article",
    { class: "table" },
    h("h3", {}, `Table ${place}`),
    picture,
    h(
      "ol",
      {},
      tests.map((test) =>
        h(
          "li",
          {},
          h("span", { class: `swatch ${hue(names, test.owner)}`, "aria-hidden": "true" }),
          test.test !== null
            ? h("span", {}, test.test)
            : h("span", {}, test.feature, h("small", {}, ` ${test.owner}’s: threshold hidden`)),
        ),
      ),
    ),
  );
}

function validation(known) {
  const run = lastTraining(known.name);
  const found = run?.report?.validation;
  if (!found) {
    const active = known.participants.find((each) => each.role === "active").name;
    return card(
      "Validation",
      h(
        "p",
        { class: "quiet" },
        known.params.validation
          ? `What is learned of validation rows is in ${active}’s report.`
          : "This job sets no validation rows aside.",
      ),
    );
  }
  const metrics = h(
    "dl",
    { class: "facts" },
    fact("Rows", found.rows),
    fact("Best at table", found.best_table),
    Object.entries(found.metrics).map(([name, value]) =>
      fact(name.replaceAll("_", " "), number(value)),
    ),
  );
  const curves = Object.entries(found.curves).map(([name, points]) => {
    const [title, x, diagonal] = CURVES[name] || [name, "", false];
    const chart = new Chart(title, lines);
    chart.set({
      series: [{ name: title, points, look: "series0" }],
      x,
      range: true,
      diagonal,
      height: 210,
    });
    return chart.element;
  });
  const mean = new Chart("Mean size of contributions to validation rows", bars);
  const sizes = Object.entries(found.importances || {});
  if (sizes.length) {
    mean.set({
      bars: sizes
        .map(([name, values]) => ({ name, value: values.reduce((sum, x) => sum + Math.abs(x), 0) }))
        .sort((a, b) => b.value - a.value)
        .slice(0, 15),
    });
  }
  const element = card(
    "Validation",
    metrics,
    h("div", { class: "curves" }, curves),
    sizes.length ? mean.element : null,
    curves.length
      ? null
      : h(
          "p",
          { class: "quiet" },
          "The job does not reveal predictions of validation rows, so there are no curves of them.",
        ),
  );
  element.classList.add("wide");
  return element;
}
