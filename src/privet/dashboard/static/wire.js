// Talking to the process that serves this page, and to nobody else. The token comes with the
// address and stays in this tab.

const KEY = "privet-token";

export function takeToken() {
  const found = location.hash.match(/^#token=([\w-]+)$/);
  if (found) {
    sessionStorage.setItem(KEY, found[1]);
    history.replaceState(null, "", "#/");
  }
  return sessionStorage.getItem(KEY);
}

function headers(more = {}) {
  return { Authorization: `Bearer ${sessionStorage.getItem(KEY) || ""}`, ...more };
}

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(path, options) {
  const answer = await fetch(path, { ...options, cache: "no-store" });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, told.error || answer.statusText);
  return told;
}

export const get = (path) => ask(path, { headers: headers() });
export const post = (path, body = {}) =>
  ask(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: headers({ "Content-Type": "application/json" }),
  });

const pause = (ms) =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

// Server-sent events, read by hand: the browser's own reader cannot show a token in a header.
export async function listen({ hear, up, down }) {
  for (let wait = 500; ; wait = Math.min(2 * wait, 5000)) {
    try {
      const answer = await fetch("api/events", { headers: headers(), cache: "no-store" });
      if (!answer.ok) throw new Refused(answer.status, "");
      up();
      wait = 500;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) {
          const kind = block.match(/^event: (.*)$/m);
          const data = block.match(/^data: (.*)$/m);
          if (kind && data) hear(kind[1], JSON.parse(data[1]));
        }
      }
    } catch (error) {
      if (error.status === 403) return down(error);
      if (!(error instanceof TypeError) && !(error instanceof Refused)) console.error(error);
    }
    down(null);
    await pause(wait);
  }
}
