// Runs, their reports, and reports side by side.

import {
  bytes,
  card,
  chip,
  count,
  duration,
  fact,
  h,
  number,
  refill,
  say,
  table,
  time,
  when,
} from "./dom.js";
import { Chart, lines } from "./charts.js";
import { load, runs } from "./store.js";

export function history() {
  const chosen = new Set();
  const body = h("div");
  const button = h("button", {
    class: "main",
    onclick: () => {
      location.hash = `#/compare/${[...chosen].map(encodeURIComponent).join(",")}`;
    },
  });
  const element = h(
    "div",
    {},
    h("h1", { tabindex: "-1" }, "History"),
    h("section", { class: "card" }, h("p", {}, button), body),
  );
  let before = "";
  function mark() {
    button.disabled = chosen.size < 2;
    say(
      button,
      chosen.size < 2
        ? "Choose two or more to see them side by side"
        : `See ${chosen.size} side by side`,
    );
  }
  function update() {
    const all = runs();
    const now = JSON.stringify(all.map((run) => [run.id, run.state]));
    if (now === before) return;
    before = now;
    mark();
    if (!all.length) {
      refill(body, h("p", { class: "quiet" }, "No runs yet."));
      return;
    }
    refill(
      body,
      table(
        "Runs, the newest first",
        ["begun", "compare", "what", "job", "how it ended", "tables", "time"],
        all.map((run) => [
          h("a", { href: `#/run/${encodeURIComponent(run.id)}` }, when(run.began)),
          h("input", {
            type: "checkbox",
            "aria-label": `compare the run of ${when(run.began)}`,
            checked: chosen.has(run.id),
            onchange(event) {
              if (event.target.checked) chosen.add(run.id);
              else chosen.delete(run.id);
              mark();
            },
          }),
          run.command,
          run.job,
          chip(run.state),
          run.command === "train" ? count(run.table) : "–",
          duration(run.seconds),
        ]),
      ),
    );
  }
  return { element, update };
}

export function runView(id) {
  const body = h("div", { class: "grid" });
  const element = h(
    "div",
    {},
    h("p", { class: "crumbs" }, h("a", { href: "#/history" }, "History"), " / ", id),
    h("h1", { tabindex: "-1" }, "A run"),
    body,
  );
  load(id).then(
    (run) => {
      const report = run.report;
      const loss = new Chart("Loss, table by table", lines);
      const series = lossesOf(run);
      if (series.length) loss.set({ series, x: "tables", legend: true });
      refill(
        body,
        card(
          `${run.command} of ${run.job}`,
          h(
            "p",
            {},
            chip(run.state),
            " ",
            when(run.began),
            run.ended ? ` to ${time(run.ended)}` : "",
          ),
          h("p", { class: run.state === "failed" ? "bad" : "" }, run.words),
          report
            ? h(
                "dl",
                { class: "facts" },
                FIGURES.map(([label, value]) => fact(label, value(run))),
              )
            : null,
        ),
        series.length ? card("Loss", loss.element) : null,
        card(
          "What left the protocol",
          h(
            "ul",
            { class: "plain" },
            (run.ledger || []).flatMap((row) => row.sentences).map((text) => h("li", {}, text)),
          ),
        ),
        card(
          "What it said",
          h(
            "ol",
            { class: "log" },
            run.log.map((each) => h("li", {}, h("time", {}, time(each.time)), " ", each.text)),
          ),
        ),
      );
    },
    (error) => refill(body, card("No such run", h("p", { class: "bad" }, error.message))),
  );
  return { element };
}

// A report has the losses of all tables, a record those of its own.
function lossesOf(run, name = "") {
  const all = run.report?.validation?.losses;
  const points = [...(run.earlier || []), ...run.points];
  const watched = all ? all.map((y, k) => [k + 1, y]) : points.map((p) => [p[0], p[2]]);
  const trained = points.map((p) => [p[0] - 1, p[1]]);
  return [
    { name: `${name}validation loss`, points: watched },
    { name: `${name}training loss`, points: trained },
  ].filter((one) => one.points.some((p) => p[1] !== null));
}

const memory = (mb) => bytes(mb && 1e6 * mb);

const FIGURES = [
  ["Command", (run) => run.command],
  ["Tables", (run) => count(run.report?.tables ?? run.table)],
  ["Rows", (run) => count(run.report?.n_samples)],
  ["Time", (run) => duration(run.report?.seconds)],
  ["Rounds", (run) => count(run.report?.rounds)],
  ["Sent", (run) => bytes(run.report?.bytes_sent)],
  ["Received", (run) => bytes(run.report?.bytes_received)],
  ["From the dealer", (run) => bytes(run.report?.bytes_from_dealer)],
  ["Memory", (run) => memory(run.report?.peak_rss_mb)],
  ["Memory of a worker", (run) => memory(run.report?.worker_peak_rss_mb)],
  ["Version", (run) => run.version],
];

export function compared(ids) {
  const body = h("div", { class: "grid" });
  const element = h(
    "div",
    {},
    h("p", { class: "crumbs" }, h("a", { href: "#/history" }, "History"), " / side by side"),
    h("h1", { tabindex: "-1" }, "Runs side by side"),
    body,
  );
  Promise.all(ids.map(load)).then(
    (found) => {
      const heads = ["", ...found.map((run) => when(run.began))];
      const metrics = [
        ...new Set(found.flatMap((run) => Object.keys(run.report?.validation?.metrics || {}))),
      ];
      const learned = [
        ...new Set(
          found.flatMap((run) =>
            run.reveals.map((reveal) => `${reveal.what} → ${reveal.to.join(", ")}`),
          ),
        ),
      ];
      const rows = [
        ["How it ended", ...found.map((run) => chip(run.state))],
        ["Job", ...found.map((run) => run.job)],
        ...FIGURES.map(([label, value]) => [label, ...found.map(value)]),
        [
          "Smallest validation loss",
          ...found.map((run) => {
            const losses = run.report?.validation?.losses;
            return losses ? number(Math.min(...losses)) : "–";
          }),
        ],
        ...metrics.map((name) => [
          name.replaceAll("_", " "),
          ...found.map((run) => number(run.report?.validation?.metrics[name])),
        ]),
      ];
      const revealed = learned.map((key) => [
        key,
        ...found.map((run) =>
          count(
            run.reveals.find((reveal) => `${reveal.what} → ${reveal.to.join(", ")}` === key)
              ?.count || 0,
          ),
        ),
      ]);
      const loss = new Chart("Loss, table by table", lines);
      const series = found.flatMap((run) => lossesOf(run, `${time(run.began)}: `));
      if (series.length)
        loss.set({
          series: series.map((one, k) => ({ ...one, look: `owner${k % 8}` })),
          x: "tables",
          legend: true,
        });
      const wide = (each) => {
        each.classList.add("wide");
        return each;
      };
      refill(
        body,
        wide(card("Figures", table("Figures of each run", heads, rows, "figures"))),
        series.length ? wide(card("Loss", loss.element)) : null,
        revealed.length
          ? wide(card("Revealed", table("What each run revealed", heads, revealed, "figures")))
          : null,
      );
    },
    (error) => refill(body, card("No such run", h("p", { class: "bad" }, error.message))),
  );
  return { element };
}
