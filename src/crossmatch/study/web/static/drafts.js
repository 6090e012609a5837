// Sends answers to the server, and stores them in the browser while there is no connection.

const NAME = "crossmatch/";
const DAYS = 14; // after which stored answers are deleted
const LONGEST_WAIT = 30_000;

/** The server rejected the request: `message` is its text, `reply` the rest of the response. */
export class RequestError extends Error {
  constructor(status, reply) {
    super(reply.error || `The server answered with status ${status}. Reload the page.`);
    this.status = status;
    this.reply = reply;
  }
}

/** There was no response, or a temporary failure: the request can be repeated. */
export class ConnectionLostError extends Error {}

/** Send one request. */
export async function send(method, url, body, keepalive = false) {
  const secret = document.querySelector('meta[name="csrf"]')?.content ?? "";
  const headers = { "content-type": "application/json", "x-csrf-token": secret };
  let response;
  try {
    response = await fetch(url, { method, headers, body: JSON.stringify(body), keepalive, credentials: "same-origin", cache: "no-store" });
  } catch {
    throw new ConnectionLostError("not connected");
  }
  if (response.status >= 500 || response.status === 429) throw new ConnectionLostError(`the server answered with ${response.status}`);
  let reply;
  try {
    reply = await response.json();
  } catch {
    if (response.ok) throw new ConnectionLostError("the response was incomplete");
    reply = {};
  }
  if (!response.ok) throw new RequestError(response.status, reply);
  return reply;
}

/** Repeat a request until there is a response, with growing pauses; `onLost` is called after every failure. */
export async function retryUntilAnswered(work, onLost) {
  for (let wait = 1000; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ConnectionLostError)) throw error;
      onLost(error);
      await pause(wait * (0.75 + Math.random() / 2)); // so that browsers do not all retry at once
    }
  }
}

/** Wait for a time, or until the browser is online again. */
function pause(milliseconds) {
  return new Promise((done) => {
    const go = () => {
      clearTimeout(timer);
      removeEventListener("online", go);
      done();
    };
    const timer = setTimeout(go, milliseconds);
    addEventListener("online", go);
  });
}

/** The answers that this browser has stored for a claim, or null. */
export function loadStored(claim) {
  try {
    const found = JSON.parse(localStorage.getItem(NAME + claim));
    return found && Number.isInteger(found.number) && Array.isArray(found.answers) ? found : null;
  } catch {
    return null;
  }
}

/** Store answers in this browser; returns whether that was possible. */
export function store(claim, draft) {
  try {
    localStorage.setItem(NAME + claim, JSON.stringify({ ...draft, at: Date.now() }));
    return true;
  } catch {
    return false;
  }
}

export function deleteStored(claim) {
  try {
    localStorage.removeItem(NAME + claim);
  } catch {
    // the browser has no storage
  }
}

/** Delete stored answers that are too old. */
export function deleteOld() {
  try {
    for (const key of Object.keys(localStorage).filter((name) => name.startsWith(NAME))) {
      const at = loadStored(key.slice(NAME.length))?.at ?? 0;
      if (Date.now() - at > DAYS * 86_400_000) localStorage.removeItem(key);
    }
  } catch {
    // the browser has no storage
  }
}

/** Sends drafts to the server: one at a time, the newest last, repeated while there is no connection. */
export class Drafts {
  constructor(claim, onStatus) {
    this.claim = claim;
    this.onStatus = onStatus; // called with "saved" and the response, with "lost", or with a RequestError
    this.waiting = null;
    this.timer = 0;
    this.busy = false;
    this.over = false;
  }

  /** Send a draft soon; it replaces an older one that still waits. */
  put(number, answers) {
    this.waiting = { number, answers };
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.flow(), 500);
  }

  async flow() {
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.waiting && !this.over) {
        let sent = this.waiting;
        let reply = null;
        const once = async () => {
          sent = this.waiting; // there may be a newer draft since the last try
          if (!this.over) reply = await send("PUT", `/api/h/${this.claim}/draft`, sent);
        };
        await retryUntilAnswered(once, () => this.over || this.onStatus("lost"));
        if (this.waiting === sent) this.waiting = null;
        if (!this.over && !this.waiting) this.onStatus("saved", reply);
      }
    } catch (error) {
      if (!this.over) this.onStatus(error);
    } finally {
      this.busy = false;
    }
  }

  /** The page is closed: send the last draft without waiting for the response. */
  flush() {
    if (this.waiting && !this.over) send("PUT", `/api/h/${this.claim}/draft`, this.waiting, true).catch(() => {});
  }

  /** Send nothing more, because the HIT is submitted. */
  end() {
    this.over = true;
    clearTimeout(this.timer);
  }
}
