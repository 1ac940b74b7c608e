// One job: its training, what left the protocol, its model, an estimate, a check.

import { h, refill } from "./dom.js";
import { job } from "./store.js";
import { training } from "./training.js";
import { left } from "./ledger.js";
import { model } from "./model.js";
import { estimate } from "./estimate.js";
import { check } from "./check.js";

const TABS = {
  training: ["Training", training],
  left: ["What left", left],
  model: ["Model", model],
  estimate: ["Estimate", estimate],
  check: ["Check", check],
};

export function jobView(name, tab) {
  const known = job(name);
  if (!known || !TABS[tab]) {
    return {
      element: h(
        "div",
        {},
        h("h1", { tabindex: "-1" }, "No such job"),
        h("p", {}, h("a", { href: "#/" }, "Back to all of them")),
      ),
    };
  }
  const view = TABS[tab][1](known);
  const links = h("nav", { class: "tabs", "aria-label": `Parts of ${name}` });
  refill(
    links,
    Object.entries(TABS).map(([key, [title]]) =>
      h(
        "a",
        {
          href: `#/job/${encodeURIComponent(name)}/${key}`,
          "aria-current": key === tab ? "page" : null,
        },
        title,
      ),
    ),
  );
  const element = h(
    "div",
    {},
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / ", name),
    h("h1", { tabindex: "-1" }, name, h("span", { class: "unseen" }, `: ${TABS[tab][0]}`)),
    links,
    view.element,
  );
  return { element, update: view.update };
}
