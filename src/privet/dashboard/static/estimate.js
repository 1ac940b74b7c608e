// What a training would take, to play with.

import { bytes, card, count, duration, fact, h, refill, say } from "./dom.js";
import { stacks } from "./bars.js";
import { Chart } from "./charts.js";
import { lastTraining } from "./store.js";
import { get, post } from "./wire.js";

const PARTS = [
  ["delays", "series2"],
  ["carrying", "series0"],
  ["computing", "series1"],
  ["waiting for the dealer", "owner7"],
];
const DEALERS = {
  ahead: "dealt ahead",
  own: "dealer on a link of its own",
  shared: "dealer on the participants’ link",
};

export function estimate(known) {
  const started = lastTraining(known.name)?.started || {};
  const fields = {};
  function field(key, label, value, options = {}) {
    const id = `estimate-${key}`;
    fields[key] = h("input", {
      id,
      type: "number",
      value,
      inputmode: "decimal",
      oninput: soon,
      ...options,
    });
    return h("div", { class: "field" }, h("label", { for: id }, label), fields[key]);
  }
  const names = known.participants.map((each) => each.name);
  const form = h(
    "form",
    { class: "fields", onsubmit: (event) => event.preventDefault() },
    field("samples", "Rows", started.samples || 10000, { min: 2 }),
    names.map((name) => field(`of-${name}`, `Features of ${name}`, 10, { min: 0 })),
    field("tables", "Tables", known.params.tables, { min: 1, max: 10000 }),
    field("depth", "Depth", known.params.depth, { min: 1, max: 10 }),
    field("delay", "Delay, ms", 5, { min: 0, step: "any" }),
    field("rate", "Rate, Mbit/s", 100, { min: 0.001, step: "any" }),
  );
  const note = h("p", { role: "status" });
  const facts = h("dl", { class: "facts" });
  const times = new Chart("Where the time goes", stacks);
  const traffic = new Chart("What is sent", stacks);
  const element = h(
    "div",
    { class: "grid" },
    card("If a training had", form, note),
    card("It would take about", facts),
    card(
      "Time",
      times.element,
      h(
        "p",
        { class: "quiet" },
        "What is carried while all compute counts once. Each participant has a processor core to itself.",
      ),
    ),
    card("Traffic", traffic.element),
  );
  let timer = 0,
    asked = 0;

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(ask, 250);
  }

  async function ask() {
    const value = (key) => Number(fields[key].value);
    const body = {
      samples: value("samples"),
      features: names.map((name) => value(`of-${name}`)),
      tables: value("tables"),
      depth: value("depth"),
      delay: value("delay"),
      rate: value("rate"),
    };
    const turn = (asked += 1);
    try {
      const found = await post(`api/jobs/${encodeURIComponent(known.name)}/estimate`, body);
      if (turn === asked) draw(found);
    } catch (error) {
      if (turn === asked) say(note, error.message);
    }
  }

  function draw(found) {
    say(
      note,
      found.at_most
        ? "The most that it can take: as if every column had as many cuts as there can be."
        : "",
    );
    refill(
      facts,
      fact("Time", duration(found.seconds), DEALERS.ahead),
      fact("Rounds", count(found.rounds)),
      fact("Between participants", bytes(found.bytes_online)),
      fact("From the dealer", bytes(found.bytes_offline)),
      fact(
        found.memory_of_head ? "Memory of a worker" : "Memory of a participant",
        bytes(found.memory),
        `${found.masks} masks`,
      ),
      found.memory_of_head ? fact("Memory of a participant", bytes(found.memory_of_head)) : null,
      fact("Disk for a while", bytes(found.bytes_on_disk_for_a_while)),
    );
    times.set({
      unit: duration,
      stacks: Object.entries(found.times).map(([key, parts]) => ({
        name: DEALERS[key],
        total: duration(parts.total),
        parts: PARTS.map(([part, look]) => ({ name: part, value: parts[part], look })),
      })),
    });
    traffic.set({
      unit: bytes,
      stacks: [
        {
          name: "between participants",
          parts: [{ name: "online", value: found.bytes_online, look: "series0" }],
        },
        {
          name: "from the dealer",
          parts: [{ name: "offline", value: found.bytes_offline, look: "series1" }],
        },
        ...(found.bytes_between_dealers
          ? [
              {
                name: "between dealers",
                parts: [
                  { name: "between dealers", value: found.bytes_between_dealers, look: "series2" },
                ],
              },
            ]
          : []),
      ],
    });
  }

  // The numbers of features that the model knows, if there is one.
  if (known.trained) {
    get(`api/jobs/${encodeURIComponent(known.name)}/model`).then((model) => {
      for (const [name, n] of Object.entries(model.columns))
        if (fields[`of-${name}`]) fields[`of-${name}`].value = n;
      ask();
    }, ask);
  } else ask();
  return { element };
}
