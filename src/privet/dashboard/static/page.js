// The page: which view is shown, whose it is, and whether the line to its process holds.

import { h, refill, say } from "./dom.js";
import { hear, lastTraining, onChange, state } from "./store.js";
import { listen, takeToken } from "./wire.js";
import { overview } from "./overview.js";
import { jobView } from "./job.js";
import { compared, history, runView } from "./history.js";

const main = document.getElementById("main");
const line = document.getElementById("line");
const said = document.getElementById("said");
let leave = () => {};

const ROUTES = [
  [/^#\/$/, "Overview", () => overview()],
  [/^#\/job\/([^/]+)(?:\/(\w+))?$/, null, (name, tab) => jobView(name, tab || "training")],
  [/^#\/history$/, "History", () => history()],
  [/^#\/run\/([^/]+)$/, "Run", (id) => runView(id)],
  [/^#\/compare\/(.+)$/, "Side by side", (ids) => compared(ids.split(","))],
];

function show() {
  const place = location.hash || "#/";
  for (const [pattern, title, view] of ROUTES) {
    const found = place.match(pattern);
    if (!found) continue;
    leave();
    const parts = found.slice(1).map((part) => part && decodeURIComponent(part));
    const { element, update = () => {}, focus = true } = view(...parts);
    refill(main, element);
    const stop = onChange(update);
    leave = stop;
    document.title = `${title || parts[0]} – ${state.overview.party} – Privet`;
    mark(place);
    update();
    if (focus) element.querySelector("h1")?.focus();
    return;
  }
  location.hash = "#/";
}

function mark(place) {
  const pages = [
    ["#/", "Overview"],
    ["#/history", "History"],
  ];
  refill(
    document.getElementById("pages"),
    pages.map(([to, name]) =>
      h("a", { href: to, "aria-current": place === to ? "page" : null }, name),
    ),
  );
}

function refuse(text) {
  leave();
  refill(
    main,
    h(
      "section",
      { class: "card narrow" },
      h("h1", { tabindex: "-1" }, "Not let in"),
      h("p", {}, text),
      h(
        "p",
        {},
        "Open the whole address that ",
        h("code", {}, "privet ui"),
        " printed when it was started: ",
        "it ends with a token, which is another one each time.",
      ),
    ),
  );
  say(line, "");
}

// Say aloud how trainings begin and end, and every tenth of the way.
const spoken = new Map();
function speak() {
  for (const known of state.overview?.jobs || []) {
    const run = lastTraining(known.name);
    if (!run) continue;
    const tenth =
      run.tables && run.state === "running" ? Math.floor((10 * (run.table || 0)) / run.tables) : "";
    const now = `${run.id} ${run.state} ${tenth}`;
    const before = spoken.get(known.name);
    spoken.set(known.name, now);
    if (before === undefined || before === now) continue;
    const lost = (run.peers || []).filter((peer) => peer.state === "lost").map((peer) => peer.name);
    const words =
      run.state === "running"
        ? `${run.table || 0} of ${run.tables || "?"} tables`
        : `${run.state}${lost.length ? `, lost ${lost.join(", ")}` : ""}`;
    said.textContent = `${known.name}: ${words}`;
  }
}

let shown = false;
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) location.reload();
  else if (shown) show();
});
onChange(speak);

if (!takeToken())
  refuse(
    "This page shows what one organisation's own files say, to whoever has the token in its address.",
  );
else {
  listen({
    up() {
      line.className = "line up";
      say(line, "live");
    },
    down(refused) {
      shown = shown && !refused;
      if (refused) return refuse("The token in this address is not the right one.");
      line.className = "line down";
      return say(line, "no answer from this machine; trying again");
    },
    hear(kind, told) {
      hear(kind, told);
      if (kind === "overview" && !shown) {
        shown = true;
        document.getElementById("whose").textContent = told.party;
        show();
      }
    },
  });
}
