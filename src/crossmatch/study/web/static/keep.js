// How answers reach the server, and where they are while they cannot.

const NAME = "crossmatch/";
const DAYS = 14; // after which what was kept here is forgotten
const LONGEST_WAIT = 30_000;

/** The server's answer was no: `text` is its one line, `told` the rest. */
export class Refused extends Error {
  constructor(status, told) {
    super(told.error || `the server answered with ${status}. Reload the page.`);
    this.status = status;
    this.told = told;
  }
}

/** There was no answer, or none that would stand: it is worth trying again. */
export class Lost extends Error {}

/** One request of our own to the server. */
export async function send(method, url, body, keepalive = false) {
  const secret = document.querySelector('meta[name="csrf"]')?.content ?? "";
  const headers = { "content-type": "application/json", "x-csrf-token": secret };
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: JSON.stringify(body), keepalive, credentials: "same-origin", cache: "no-store" });
  } catch {
    throw new Lost("not connected");
  }
  if (answer.status >= 500 || answer.status === 429) throw new Lost(`the server answered with ${answer.status}`);
  let told;
  try {
    told = await answer.json();
  } catch {
    if (answer.ok) throw new Lost("the answer broke off");
    told = {};
  }
  if (!answer.ok) throw new Refused(answer.status, told);
  return told;
}

/** Try until there is an answer, waiting longer each time; `onLost` hears of every failure. */
export async function insist(work, onLost) {
  for (let wait = 1000; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Lost)) throw error;
      onLost(error);
      await pause(wait * (0.75 + Math.random() / 2)); // not all browsers at once
    }
  }
}

/** Wait so long, or until the browser says that it is connected again. */
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

/** What is kept in this browser of a HIT; null if nothing is, or if the browser keeps nothing. */
export function kept(claim) {
  try {
    const found = JSON.parse(localStorage.getItem(NAME + claim));
    return found && Number.isInteger(found.number) && Array.isArray(found.answers) ? found : null;
  } catch {
    return null;
  }
}

/** Keep it; whether the browser did. */
export function keep(claim, told) {
  try {
    localStorage.setItem(NAME + claim, JSON.stringify({ ...told, at: Date.now() }));
    return true;
  } catch {
    return false;
  }
}

export function forget(claim) {
  try {
    localStorage.removeItem(NAME + claim);
  } catch {
    // a browser that keeps nothing has nothing to forget
  }
}

/** Forget what has lain here for too long. */
export function tidy() {
  try {
    for (const key of Object.keys(localStorage).filter((name) => name.startsWith(NAME))) {
      const at = kept(key.slice(NAME.length))?.at ?? 0;
      if (Date.now() - at > DAYS * 86_400_000) localStorage.removeItem(key);
    }
  } catch {
    // as above
  }
}

/** Drafts on their way to the server: one at a time, the newest always last, none lost while there is no connection. */
export class Drafts {
  constructor(claim, heard) {
    this.claim = claim;
    this.heard = heard; // is told "kept" and what the server said, "lost", or the error of a refusal
    this.waiting = null;
    this.timer = 0;
    this.busy = false;
    this.over = false;
  }

  /** Send this soon; what waited before it is out of date. */
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
        let told = null;
        const once = async () => {
          sent = this.waiting; // there may be a newer one since the last try
          if (!this.over) told = await send("PUT", `/api/h/${this.claim}/draft`, sent);
        };
        await insist(once, () => this.over || this.heard("lost"));
        if (this.waiting === sent) this.waiting = null;
        if (!this.over && !this.waiting) this.heard("kept", told);
      }
    } catch (error) {
      if (!this.over) this.heard(error);
    } finally {
      this.busy = false;
    }
  }

  /** The page goes away: a last try, without waiting for the answer. */
  flush() {
    if (this.waiting && !this.over) send("PUT", `/api/h/${this.claim}/draft`, this.waiting, true).catch(() => {});
  }

  /** Nothing more is sent: the HIT is submitted. */
  end() {
    this.over = true;
    clearTimeout(this.timer);
  }
}
