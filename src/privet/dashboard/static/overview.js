// All federations and jobs that this participant has files of.

import { card, chip, h, refill, table, time, when } from "./dom.js";
import { job, lastTraining, runs, state, stateOf } from "./store.js";

export function overview() {
  const body = h("div");
  const element = h(
    "div",
    {},
    h("h1", { tabindex: "-1" }, "Federations of ", h("em", {}, state.overview.party)),
    body,
  );
  let before = "";

  function update() {
    const { federations, folder, data } = state.overview;
    const live = state.overview.jobs.map((each) => {
      const run = lastTraining(each.name);
      return [
        each.name,
        stateOf(each),
        run?.table,
        run?.id,
        each.complaint,
        run?.peers?.map((p) => p.state),
      ];
    });
    const now = JSON.stringify([federations, live, state.overview.runs.length]);
    if (now === before) return; // so that focus stays where it is
    before = now;
    refill(
      body,
      federations.length
        ? null
        : card(
            "No jobs yet",
            h(
              "p",
              {},
              "There is no job beside party.toml in which you take part, and no run of one. ",
              "Put a job’s file there, or name it: ",
              h("code", {}, "privet ui --party party.toml --job job.toml"),
              ".",
            ),
          ),
      federations.map((each) => federation(each)),
      h(
        "p",
        { class: "quiet" },
        `Models and records of runs are in ${folder}; the table is ${data}.`,
      ),
    );
  }
  return { element, update };
}

function federation(group) {
  const people = [...group.participants, ...group.dealers];
  const names = people.map((name) =>
    h(
      "li",
      { class: group.dealers.includes(name) ? "dealer" : "" },
      name,
      name === state.overview.party
        ? h("small", {}, " you")
        : group.dealers.includes(name)
          ? h("small", {}, " deals")
          : null,
    ),
  );
  return h(
    "section",
    { class: "card federation" },
    h("h2", {}, `${group.participants.join(", ")}`),
    h("ul", { class: "people", "aria-label": "Who takes part" }, names),
    h(
      "div",
      { class: "jobs" },
      group.jobs.map((name) => jobCard(job(name))),
    ),
    h(
      "details",
      {},
      h("summary", {}, "Fingerprints of their keys"),
      table(
        "Fingerprints of keys",
        ["who", "fingerprint"],
        group.members.map((member) => [member.name, h("code", {}, member.fingerprint || "–")]),
      ),
    ),
  );
}

function jobCard(known) {
  const run = lastTraining(known.name);
  const now = stateOf(known);
  const others = runs().filter((each) => each.job === known.name && each.command !== "train");
  const lost = (run?.peers || []).filter((peer) => peer.state === "lost");
  return h(
    "article",
    { class: "job" },
    h(
      "h3",
      {},
      h("a", { href: `#/job/${encodeURIComponent(known.name)}` }, known.name),
      " ",
      chip(now),
    ),
    h(
      "p",
      {},
      `${known.task}, ${known.params.tables} tables of depth ${known.params.depth}; predictions go to ${known.recipient}.`,
    ),
    run && run.tables
      ? h(
          "div",
          {
            class: "meter",
            role: "progressbar",
            "aria-label": `tables of ${known.name}`,
            "aria-valuemin": 0,
            "aria-valuemax": run.tables,
            "aria-valuenow": run.table || 0,
          },
          fillOf(run),
        )
      : null,
    lost.length
      ? h("p", { class: "bad" }, `Lost ${lost.map((peer) => peer.name).join(", ")}.`)
      : null,
    known.complaint ? h("p", { class: "bad" }, known.complaint) : null,
    h(
      "p",
      { class: "quiet" },
      run
        ? `Last training ${when(run.began)}${run.ended ? `, ended ${time(run.ended)}` : ""}. `
        : "Not trained from here yet. ",
      others.length ? `${others.length} other ${others.length === 1 ? "run" : "runs"}.` : "",
    ),
  );
}

function fillOf(run) {
  const bar = h("span");
  bar.style.width = `${(100 * (run.table || 0)) / run.tables}%`;
  return bar;
}
