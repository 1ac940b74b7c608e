// What left the protocol, in words, beside what the job allows.

import { card, count, h, refill, say } from "./dom.js";
import { lastTraining, state } from "./store.js";

export function left(known) {
  const lead = h("p");
  const allowed = h("div");
  const hidden = h("div");
  const which = h("div", { class: "choice", role: "group", "aria-label": "Of which runs" });
  let all = true;
  const choices = [
    ["All runs of this job", true],
    ["The last training", false],
  ].map(([words, value]) =>
    h(
      "button",
      {
        "aria-pressed": String(value === all),
        onclick() {
          all = value;
          choices.forEach((each) => each.setAttribute("aria-pressed", String(each === this)));
          draw();
        },
      },
      words,
    ),
  );
  refill(which, choices);
  const element = h(
    "div",
    {},
    card(
      "What left the protocol",
      h(
        "p",
        { class: "quiet" },
        "All know the terms of the job, the number of rows and the names of columns. Everything else that crossed the wire was masked.",
      ),
      which,
      lead,
      allowed,
    ),
    card("What this job keeps from everybody", hidden),
  );

  function draw() {
    const ledger = state.ledgers.get(known.name);
    const rows = (all ? ledger?.rows : lastTraining(known.name)?.ledger) || [];
    const odd = rows.filter((row) => !row.allowed && row.count);
    say(
      lead,
      odd.length
        ? "Something left that no term of this job allows: see the rows marked below."
        : !rows.some((row) => row.count)
          ? "Nothing has left yet."
          : `All of it is what the job allows.${all && ledger.runs > 1 ? ` These are ${ledger.runs} runs together; what was told again counts again.` : ""}`,
    );
    lead.className = odd.length ? "bad" : "";
    refill(allowed, list(rows.filter((row) => row.allowed || row.count)));
    refill(
      hidden,
      h(
        "ul",
        { class: "plain" },
        rows
          .filter((row) => !row.allowed && !row.count)
          .map((row) =>
            h(
              "li",
              {},
              h("span", { class: "lock", "aria-hidden": "true" }),
              row.what,
              " ",
              h("small", {}, row.because),
            ),
          ),
      ),
    );
  }
  return { element, update: draw };
}

function list(rows) {
  return h(
    "table",
    { class: "ledger" },
    h("caption", { class: "unseen" }, "What the job allows, and what was revealed"),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        ["the job allows", "to", "what was learned"].map((head) => h("th", { scope: "col" }, head)),
      ),
    ),
    h(
      "tbody",
      {},
      rows.map((row) =>
        h(
          "tr",
          { class: row.allowed ? "" : "odd" },
          h(
            "th",
            { scope: "row" },
            row.allowed ? row.what : `Not allowed: ${row.what}`,
            h("small", {}, row.because),
          ),
          h("td", { "data-label": "to" }, row.to),
          h(
            "td",
            { "data-label": "learned" },
            row.count
              ? row.sentences.map((text) => h("div", {}, text))
              : h("span", { class: "quiet" }, `nothing yet (${count(0)})`),
          ),
        ),
      ),
    ),
  );
}
