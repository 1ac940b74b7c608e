// What `privet check` says.

import { card, h, refill, say, time } from "./dom.js";
import { post } from "./wire.js";

const TICKS = {
  good: ["✓", "fine"],
  doubtful: ["!", "doubtful"],
  bad: ["✗", "keeps you from taking part"],
};

export function check(known) {
  const found = h("ul", { class: "findings" });
  const note = h("p", { role: "status" });
  const button = h("button", { class: "main", onclick: look }, "Check now");
  const element = card(
    "Could you take part?",
    h(
      "p",
      {},
      "Keys, addresses, clock, disk and table, as ",
      h("code", {}, "privet check"),
      " sees them. Nobody is told anything; at the addresses of others it only sees whether a connection can be made.",
    ),
    button,
    note,
    found,
  );

  async function look() {
    button.disabled = true;
    say(note, "Looking: the table is read as a training would read it.");
    try {
      const { findings } = await post(`api/jobs/${encodeURIComponent(known.name)}/check`);
      const bad = findings.filter((each) => each.verdict === "bad").length;
      say(
        note,
        `${bad ? `${bad} ${bad === 1 ? "thing keeps" : "things keep"} you from taking part` : "Nothing keeps you from taking part"}, as of ${time(new Date().toISOString())}.`,
      );
      refill(
        found,
        findings.map((each) =>
          h(
            "li",
            { class: each.verdict },
            h(
              "span",
              { class: "tick", role: "img", "aria-label": TICKS[each.verdict][1] },
              TICKS[each.verdict][0],
            ),
            h("b", {}, each.what),
            h("span", {}, each.text),
          ),
        ),
      );
    } catch (error) {
      say(note, error.message);
    }
    button.disabled = false;
  }
  return { element };
}
