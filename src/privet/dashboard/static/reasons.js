// Reason codes: what contributes to the predictions that a run wrote to a file.

import { card, h, number, refill, say } from "./dom.js";
import { bars } from "./bars.js";
import { Chart } from "./charts.js";
import { runs } from "./store.js";
import { get } from "./wire.js";

export function reasons(known) {
  const explained = () => runs().filter((run) => run.job === known.name && run.explained);
  const [last] = explained();
  if (!last) {
    return card(
      "Reasons",
      h(
        "p",
        { class: "quiet" },
        known.explain
          ? `${known.recipient} gets them beside predictions: privet predict --explain --out predictions.csv.`
          : "This job has no explanations: its terms do not say explain.",
      ),
    );
  }
  const path = `api/runs/${encodeURIComponent(last.id)}`;
  const chart = new Chart("What contributes to this row’s score", bars);
  const about = h("p", { role: "status" });
  const list = h("div", { class: "rows" });
  const search = h("input", { id: "row", type: "search", oninput: find, autocomplete: "off" });

  async function find() {
    try {
      const { columns, rows, found, all } = await get(
        `${path}/rows?id=${encodeURIComponent(search.value)}`,
      );
      refill(
        list,
        h("p", { class: "quiet" }, `${found} of ${all} rows; ${columns.slice(1).join(", ")}`),
        h(
          "ul",
          {},
          rows.slice(0, 40).map((cells) =>
            h(
              "li",
              {},
              h(
                "button",
                { class: "row", onclick: () => explain(cells[0]) },
                h("b", {}, cells[0]),
                " ",
                cells
                  .slice(1)
                  .map((cell) => (Number.isNaN(Number(cell)) ? cell : number(Number(cell), 3)))
                  .join(" · "),
              ),
            ),
          ),
        ),
      );
      if (rows.length && !search.value) explain(rows[0][0]);
    } catch (error) {
      refill(list, h("p", { class: "bad" }, error.message));
    }
  }

  async function explain(row) {
    try {
      const told = await get(`${path}/reasons?row=${encodeURIComponent(row)}`);
      const one = told.outputs.reduce((best, each) => (each.score > best.score ? each : best));
      say(
        about,
        `Row ${row}: the score ${number(one.score)}${one.of ? ` of ${one.of}` : ""} is the base ${number(one.base)} and these contributions.`,
      );
      chart.set({
        bars: one.contributions.slice(0, 12).map((each) => ({
          name: each.name,
          value: each.value,
          look: each.value < 0 ? "down" : "up",
        })),
      });
    } catch (error) {
      say(about, error.message);
    }
  }
  find();
  const element = card(
    "Reasons",
    h(
      "div",
      { class: "split" },
      h(
        "div",
        {},
        h("div", { class: "field" }, h("label", { for: "row" }, "A row, by its id"), search),
        list,
      ),
      h("div", {}, about, chart.element),
    ),
  );
  element.classList.add("wide");
  return element;
}
