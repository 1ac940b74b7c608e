// How a training stands: in a sentence, in figures, and who is there.

import { bytes, count, duration, fact, h, number, refill, table, time } from "./dom.js";
import { state } from "./store.js";

const PEERS = {
  connected: ["connected", "good"],
  missing: ["not there yet", "busy"],
  lost: ["lost", "bad"],
  left: ["not connected", "idle"],
  unknown: ["not met yet", "idle"],
};

export function sayState(run, known) {
  if (!run)
    return known.file
      ? "Nobody has trained this job from here. All participants and the dealer must be started, in any order."
      : "The job’s file is not known here: start the page with --job to train it.";
  if (run.state === "failed")
    return run.end?.peer
      ? `Lost ${run.end.peer}. Once it is back, going on starts after the last table that all have.`
      : run.words;
  if (run.state === "stopped")
    return "Stopped here. Going on starts after the last table that all have.";
  if (run.state === "killed")
    return "The process ended without a last word: it was killed, or the machine was. Going on starts after the last table that all have.";
  if (run.state === "done") return `Done: ${run.words.split("\n").at(-1)}.`;
  return run.words || "Starting.";
}

export function drawFacts(facts, run, known, going) {
  if (!run) return refill(facts);
  const total = run.tables || known.params.tables;
  const dealers = new Set(run.dealers || []);
  const sum = (key, wanted) =>
    (run.peers || [])
      .filter((p) => dealers.has(p.name) === wanted)
      .reduce((all, p) => all + (p[key] || 0), 0);
  // Our workers have connections of their own.
  const worked = run.by_workers || { sent: 0, received: 0, dealt: 0 };
  const report = run.report;
  const started = run.started || {};
  return refill(
    facts,
    fact(
      "Table",
      `${count(run.table || 0)} of ${count(total)}`,
      run.resumed ? `${run.resumed} from before` : null,
    ),
    going
      ? fact(
          "Level",
          run.level ? `${run.level} of ${known.params.depth}` : "–",
          run.step ? run.step.split("/").at(-1) : null,
        )
      : null,
    going && run.groups
      ? fact(
          "Groups",
          count(run.groups),
          run.waits_for_group
            ? `waiting for group ${run.waits_for_group}`
            : `the slowest is group ${run.slowest_group}`,
        )
      : null,
    going
      ? fact(
          "Time left",
          run.seconds_left === null || run.seconds_left === undefined
            ? "–"
            : duration(run.seconds_left),
          run.rate ? `${number(60 * run.rate, 3)} tables a minute` : null,
        )
      : fact("Time", duration(report?.seconds)),
    fact(
      "Rounds",
      count(report?.rounds ?? run.rounds),
      started.rounds ? `foreseen: ${count(started.rounds)}` : null,
    ),
    fact("Sent to participants", bytes(report?.bytes_sent ?? sum("sent", false) + worked.sent)),
    fact("Received from them", bytes(report?.bytes_received ?? sum("received", false) + worked.received)),
    fact(
      "From the dealer",
      bytes(report?.bytes_from_dealer ?? sum("received", true) + worked.dealt),
      started.bytes_offline
        ? `foreseen: ${bytes(started.bytes_offline / known.participants.length)}`
        : null,
    ),
    started.samples
      ? fact(
          "Rows, features",
          `${count(started.samples)}, ${count(started.features)}`,
          started.masks ? `${started.masks} masks` : null,
        )
      : null,
  );
}

function delay(ms) {
  if (ms === null || ms === undefined) return "–";
  return ms < 0.1 ? "< 0.1 ms" : `${number(ms, 2)} ms`;
}

export function drawPeople(people, run, known) {
  const met = new Map((run?.peers || []).map((peer) => [peer.name, peer]));
  const others = [...known.participants, ...known.dealers].filter(
    (each) => each.name !== state.overview.party,
  );
  const rows = others.map((each) => {
    const peer = met.get(each.name) || { state: "unknown" };
    const [words, look] = PEERS[peer.state] || PEERS.unknown;
    const here = peer.state === "connected";
    return [
      h(
        "span",
        {},
        each.name,
        h(
          "small",
          {},
          known.dealers.some((d) => d.name === each.name)
            ? " dealer"
            : each.role === "active"
              ? " label"
              : "",
        ),
      ),
      h(
        "span",
        { class: `chip ${look}`, "data-peer": each.name },
        words,
        peer.since ? h("small", {}, ` since ${time(peer.since)}`) : null,
      ),
      here ? delay(peer.delay_ms) : "–",
      bytes(peer.sent),
      bytes(peer.received),
    ];
  });
  refill(
    people,
    table("Who is connected", ["who", "state", "delay", "sent", "received"], rows, "figures"),
  );
}
