// A training as it goes on: tables, level, time left, rounds, bytes by peer, the loss.

import { card, chip, h, refill, say, time } from "./dom.js";
import { Chart, lines } from "./charts.js";
import { drawFacts, drawPeople, sayState } from "./standing.js";
import { lastTraining, state, stateOf } from "./store.js";
import { post } from "./wire.js";

export function training(known) {
  const name = known.name;
  const now = h("span");
  const words = h("p", { class: "words" });
  const detail = h("p", { class: "quiet" });
  const complaint = h("p", { class: "bad", role: "alert" });
  const start = h("button", {
    class: "main",
    onclick: () => act(() => post(`api/jobs/${encodeURIComponent(name)}/train`, {})),
  });
  const stop = h(
    "button",
    {
      onclick: () => act(() => post(`api/runs/${encodeURIComponent(lastTraining(name).id)}/stop`)),
    },
    "Stop",
  );
  const again = h("button", { class: "quiet", onclick: anew }, "Start anew");
  const meter = h("span");
  const progress = h(
    "div",
    {
      class: "meter large",
      role: "progressbar",
      "aria-label": "tables trained",
      "aria-valuemin": 0,
    },
    meter,
  );
  const facts = h("dl", { class: "facts" });
  const people = h("div");
  const loss = new Chart("Loss, table by table", lines);
  const lossNote = h("p", { class: "quiet" });
  const lossCard = card("Loss", loss.element, lossNote);
  const sentences = h("ul", { class: "plain" });
  const log = h("ol", { class: "log" });
  const warnings = h("div");
  const element = h(
    "div",
    { class: "grid" },
    h(
      "section",
      { class: "card wide" },
      h(
        "div",
        { class: "head" },
        h("h2", {}, "Training"),
        now,
        h("span", { class: "space" }),
        start,
        stop,
        again,
      ),
      complaint,
      words,
      detail,
      progress,
      facts,
      warnings,
    ),
    h(
      "div",
      {},
      card("Who is there", people),
      card(
        "What left the protocol so far",
        sentences,
        h(
          "p",
          {},
          h("a", { href: `#/job/${encodeURIComponent(name)}/left` }, "Beside what the job allows"),
        ),
      ),
    ),
    h(
      "div",
      {},
      lossCard,
      h("section", { class: "card" }, h("details", {}, h("summary", {}, "What it said"), log)),
    ),
  );
  let asked = 0;

  async function act(what) {
    say(complaint, "");
    asked = Date.now();
    draw();
    try {
      await what();
    } catch (error) {
      asked = 0;
      say(complaint, error.message);
    }
  }

  function anew() {
    if (
      confirm(`Train ${name} from the first table, whatever is there? All participants must do so.`)
    ) {
      act(() => post(`api/jobs/${encodeURIComponent(name)}/train`, { restart: true }));
    }
  }

  let before = "";
  function draw() {
    const run = lastTraining(name);
    const entry = state.overview.jobs.find((each) => each.name === name) || known;
    const going = run && ["starting", "waiting", "running"].includes(run.state);
    const key = `${run?.id} ${run?.state}`;
    if (key !== before) {
      asked = 0;
      before = key;
      refill(now, chip(stateOf(entry)));
    }
    const soon = Date.now() - asked < 8000;
    start.hidden = Boolean(going);
    const complete = run?.state === "done" && run.table >= entry.params.tables;
    start.disabled = soon || !entry.file || complete;
    say(start, soon ? "Starting" : run ? "Go on" : "Train");
    start.title = complete
      ? "All tables are trained; with more tables in everybody’s job, it can go on"
      : "";
    stop.hidden = !going;
    stop.disabled = soon;
    again.hidden = Boolean(going) || !run;
    if (entry.complaint && !going) say(complaint, entry.complaint);
    if (going) say(complaint, "");
    say(words, sayState(run, entry));
    say(detail, run?.state === "failed" && run.end?.peer ? run.words : "");
    words.className = run && ["failed", "killed"].includes(run.state) ? "words bad" : "words";
    progress.hidden = !run?.tables;
    if (run?.tables) {
      meter.style.width = `${(100 * (run.table || 0)) / run.tables}%`;
      progress.setAttribute("aria-valuemax", run.tables);
      progress.setAttribute("aria-valuenow", run.table || 0);
      progress.setAttribute("aria-valuetext", `${run.table || 0} of ${run.tables} tables`);
    }
    drawFacts(facts, run, known, going);
    drawPeople(people, run, known);
    drawLoss(run);
    refill(
      sentences,
      (run?.ledger || []).flatMap((row) =>
        row.sentences.map((text) => h("li", { class: row.allowed ? "" : "bad" }, text)),
      ),
    );
    if (!sentences.children.length) refill(sentences, h("li", { class: "quiet" }, "Nothing yet."));
    refill(
      log,
      (run?.log || []).map((each) => h("li", {}, h("time", {}, time(each.time)), " ", each.text)),
    );
    refill(
      warnings,
      (run?.warnings || []).map((text) => h("p", { class: "doubt" }, text)),
    );
  }

  function drawLoss(run) {
    const points = [...(run?.earlier || []), ...(run?.points || [])];
    const ours = points.some((p) => p[2] !== null);
    const shared = points.some((p) => p[1] !== null);
    const validated = run?.report?.validation;
    const series = [];
    if (ours)
      series.push({
        name: "validation loss",
        look: "series0",
        points: points.map((p) => [p[0], p[2]]),
      });
    if (shared)
      series.push({
        name: "training loss",
        look: "series1",
        points: points.map((p) => [p[0] - 1, p[1]]),
      });
    lossCard.hidden = !run;
    loss.element.hidden = !series.length;
    if (series.length) {
      const best = validated?.best_table || run.best_table;
      loss.set({
        series,
        x: "tables",
        legend: true,
        marks: ours && best ? [{ x: best, text: `smallest at ${best}` }] : [],
      });
    }
    const active = known.participants.find((each) => each.role === "active").name;
    say(
      lossNote,
      series.length
        ? ""
        : known.params.validation && active === state.overview.party
          ? "The loss on validation rows is shown after the first table."
          : known.params.validation
            ? `The loss on validation rows goes to ${active} alone, and the job does not reveal the training loss.`
            : "This job reveals no loss to anybody: it sets no validation rows aside, and does not say reveal_loss.",
    );
  }

  return { element, update: draw };
}
