// What this page was told, and whoever wants to know when that changes.

import { get } from "./wire.js";

export const state = { overview: null, runs: new Map(), ledgers: new Map() };
const listeners = new Set();
let due = false;

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// Once a frame, however much has come.
function changed() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    for (const listener of [...listeners]) listener();
  });
}

export function hear(kind, told) {
  if (kind === "overview") state.overview = told;
  else if (kind === "ledger") state.ledgers.set(told.job, told);
  else if (kind === "run") takeRun(told);
  changed();
}

function takeRun(told) {
  const known = state.runs.get(told.id);
  if (told.from === 0 || !known) {
    state.runs.set(told.id, told);
    if (told.from > 0) load(told.id);
    return;
  }
  const points = known.points;
  points.length = told.from; // what came twice, after the line was cut, counts once
  for (const point of told.points) points.push(point);
  state.runs.set(told.id, { earlier: known.earlier, ...told, points });
}

// A whole run, from the other side if we do not have it.
export async function load(id) {
  const told = await get(`api/runs/${encodeURIComponent(id)}`);
  state.runs.set(id, told);
  changed();
  return told;
}

export const job = (name) => state.overview?.jobs.find((each) => each.name === name);
export const runs = () =>
  (state.overview?.runs || []).map((brief) => {
    const run = state.runs.get(brief.id);
    return run ? { ...brief, ...run } : brief;
  });
export const lastTraining = (name) =>
  runs().find((run) => run.job === name && run.command === "train");

export function stateOf(known) {
  const run = lastTraining(known.name);
  if (run && run.state !== "done") return run.state;
  return known.trained ? "trained" : "none";
}
