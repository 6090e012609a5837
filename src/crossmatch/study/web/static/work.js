// One HIT: one question at a time, answers kept on the way, and the next HIT after it.

import { asked, cleaned, complete, missing } from "./answers.js";
import { drawItem, KEYS, make } from "./draw.js";
import { Drafts, forget, insist, keep, kept, Refused, send, tidy } from "./keep.js";
import { makeViewer } from "./viewer.js";

const byId = (id) => document.getElementById(id);
const page = byId("work");
const viewer = makeViewer();

let hit = null; // as the server told it
let answers = []; // for each item, by question
let seconds = []; // that each item was in view
let number = 0; // of the newest draft
let place = 0; // of the item in view
let since = 0; // when its time began to run; 0: it does not
let drawn = null; // the item in view
let current = null; // the question that keys act on
let drafts = null;
let sending = false;
let done = Number(page.dataset.done);

// -- a HIT

/** Show a HIT, with what was answered before: here or on the server, whichever is newer. */
function begin(told) {
  hit = told;
  const here = kept(hit.claim);
  const there = hit.draft.answers ? hit.draft : null;
  const newest = here && here.number >= hit.draft.number ? here : there;
  answers = hit.items.map((item, n) => cleaned(item, newest?.answers[n]));
  seconds = hit.items.map((_, n) => (Number.isFinite(here?.seconds?.[n]) ? here.seconds[n] : 0));
  number = Math.max(here?.number ?? 0, hit.draft.number);
  drafts = new Drafts(hit.claim, heard);
  if (here && here.number > hit.draft.number) drafts.put(number, answers);
  sending = false;
  byId("dots").replaceChildren(...(hit.items.length > 1 ? hit.items.map(drawDot) : []));
  keptUntil(hit.lease);
  heard("");
  const unanswered = hit.items.findIndex((item, n) => !complete(item, answers[n]));
  go(hit.items[here?.place] ? here.place : Math.max(0, unanswered), false);
}

/** Bring an item into view. */
function go(to, focus = true) {
  if (to < 0 || to >= hit.items.length || sending) return;
  tick();
  place = to;
  const item = hit.items[place];
  current = missing(item, answers[place]) ?? item.questions[0];
  drawn = drawItem(item, say, (n) => viewer.open(item, n), activate);
  byId("item").replaceChildren(drawn.element);
  byId("where").textContent = heading();
  refresh();
  scrollTo(0, 0);
  if (focus) byId("where").focus({ preventScroll: true });
  for (const address of hit.items[place + 1]?.images ?? []) new Image().src = address; // so that it is there in time
}

function heading() {
  const what = hit.quiz ? "Trial question" : "Question";
  const blocks = [...new Set(hit.items.map((item) => item.block))];
  const part = blocks.length > 1 ? `Part ${blocks.indexOf(hit.items[place].block) + 1} of ${blocks.length} · ` : "";
  return hit.items.length > 1 ? `${part}${what} ${place + 1} of ${hit.items.length}` : `${what} ${done + 1}`;
}

function drawDot(_, n) {
  const dot = make("button", "dot", String(n + 1), { type: "button" });
  dot.addEventListener("click", () => go(n));
  return dot;
}

// -- answers

function say(question, value) {
  const item = hit.items[place];
  answers[place] = cleaned(item, { ...answers[place], [question.name]: value });
  const after = asked(item, answers[place]);
  const follows = after[after.indexOf(question) + 1];
  const moves = question.kind === "choice" && follows && answers[place][follows.name] === undefined;
  current = moves ? follows : question; // where several may be chosen, keys stay until Enter
  refresh();
  if (moves) drawn.reveal(current);
  wrong("");
  remember();
}

function activate(question) {
  if (current === question) return;
  current = question;
  drawn.refresh(answers[place], current);
}

function remember() {
  tick();
  number += 1;
  keep(hit.claim, { number, answers, seconds, place });
  drafts.put(number, structuredClone(answers));
  byId("kept").textContent = "";
}

/** Show how far things are. */
function refresh() {
  drawn.refresh(answers[place], current);
  const finished = hit.items.map((item, n) => complete(item, answers[n]));
  const count = finished.filter(Boolean).length;
  const all = count === hit.items.length;
  const last = place === hit.items.length - 1;
  byId("count").textContent = hit.items.length > 1 ? `${count} of ${hit.items.length} answered` : "";
  byId("bar").max = hit.items.length;
  byId("bar").value = count;
  byId("bar").hidden = hit.items.length < 2;
  [...byId("dots").children].forEach((dot, n) => {
    dot.classList.toggle("answered", finished[n]);
    dot.setAttribute("aria-label", `Question ${n + 1}${finished[n] ? ", answered" : ""}`);
    dot.tabIndex = n === place ? 0 : -1;
    if (n === place) dot.setAttribute("aria-current", "step");
    else dot.removeAttribute("aria-current");
  });
  byId("dots").children[place]?.scrollIntoView({ block: "nearest", inline: "center" });
  byId("back").hidden = hit.items.length < 2;
  byId("back").disabled = place === 0 || sending;
  byId("next").hidden = last;
  byId("next").disabled = sending;
  byId("submit").disabled = !all || sending;
  byId("submit").classList.toggle("plain", !last && !all);
  byId("next").classList.toggle("plain", all && !last);
  byId("submit").textContent = sending ? "Sending …" : "Submit";
}

// -- time

/** Count the time since the last look, if the page was in view. */
function tick() {
  const now = performance.now();
  if (since && hit) seconds[place] += (now - since) / 1000;
  since = document.visibilityState === "visible" ? now : 0;
}

// -- words to people

/** Say until when this task is kept; a quiz is kept for ever. */
function keptUntil(lease) {
  const until = new Date(1000 * lease).toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" });
  byId("lease").hidden = !lease;
  byId("lease").textContent = lease ? `This task is kept for you until ${until}, and for longer as you answer.` : "";
}

function heard(what, reply) {
  if (reply?.lease) keptUntil(reply.lease); // answers keep a task for longer
  const told = byId("told");
  const lost = what === "lost";
  if (what instanceof Refused) wrong(what.message);
  if (told.hidden === lost) told.hidden = !lost; // set only where it changes, so that it is read out once
  if (lost && !told.textContent) told.textContent = "Not connected – your answers are kept here, and sent when the connection is back.";
  if (!lost) told.textContent = "";
  byId("kept").textContent = what === "kept" ? "Saved" : "";
}

function wrong(text) {
  byId("wrong").hidden = !text;
  byId("wrong").textContent = text ? text[0].toUpperCase() + text.slice(1) : "";
}

// -- submitting, and what comes next

async function submit() {
  if (sending || byId("submit").disabled) return;
  tick();
  sending = true;
  drafts.end();
  wrong("");
  refresh();
  try {
    const body = { answers, seconds: seconds.map((s) => Math.round(10 * s) / 10) };
    const receipt = await insist(() => send("POST", `/api/h/${hit.claim}/submit`, body), () => heard("lost"));
    heard("");
    forget(hit.claim);
    if (!hit.quiz) done += 1;
    await next(receipt);
  } catch (error) {
    sending = false;
    drafts = new Drafts(hit.claim, heard);
    refresh();
    wrong(error instanceof Refused ? error.message : "something went wrong on this page. Reload it: your answers are kept.");
  }
}

/** The next HIT in place of this one; or back to the study, if there is none. */
async function next(receipt) {
  let told;
  try {
    told = await insist(() => send("POST", `/api/s/${hit.study}/claim`, {}), () => heard("lost"));
  } catch (error) {
    const why = error.told?.why ?? "";
    location.replace(`/s/${hit.study}${why ? `?end=${encodeURIComponent(why)}` : ""}`);
    return;
  }
  history.replaceState(null, "", `/h/${told.claim}`);
  since = 0;
  hit = null;
  begin(told);
  byId("where").focus({ preventScroll: true });
  if (receipt.passed) note("Well done. Now the work itself begins.");
  if (receipt.passed === null && !receipt.counted) note("Somebody else had been given that task in the meantime. Your answers were kept all the same.");
}

function note(text) {
  byId("told").textContent = text;
  byId("told").hidden = false;
}

// -- keys

function goOn() {
  const left = missing(hit.items[place], answers[place]);
  if (left) {
    current = left;
    drawn.refresh(answers[place], current);
    drawn.reveal(current);
    wrong("answer the question first, or go on with the arrow key.");
  } else if (place < hit.items.length - 1) {
    go(place + 1);
  } else if (byId("submit").disabled && !sending) {
    go(hit.items.findIndex((item, n) => !complete(item, answers[n])));
  } else {
    submit();
  }
}

function choose(n) {
  const option = current?.kind === "slider" ? null : current?.options[n];
  if (!option || sending) return;
  const before = answers[place][current.name] ?? [];
  const question = current;
  if (question.kind === "choice") say(question, option.value);
  else say(question, before.includes(option.value) ? before.filter((value) => value !== option.value) : [...before, option.value]);
  const focused = document.activeElement;
  if (focused?.name && focused.closest("fieldset")?.contains(focused) && question.kind === "choice") drawn.focus(question);
}

const ACTS = {
  ArrowLeft: () => go(place - 1),
  ArrowRight: () => go(place + 1),
  Enter: goOn,
  a: () => drawn.focus(current),
  e: () => viewer.open(hit.items[place], 0),
  "?": () => byId("help").showModal(),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
  const on = event.target;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (key === "Enter" && (event.repeat || on.closest("button, a"))) return;
  if (key.startsWith("Arrow") && on.closest("input[type=radio], input[type=range], #dots")) return;
  const digit = KEYS.indexOf(key);
  if (digit >= 0 && key.length === 1) choose(digit);
  else if (ACTS[key]) ACTS[key]();
  else return;
  event.preventDefault();
});

byId("dots").addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const dots = [...byId("dots").children];
  const to = dots[dots.indexOf(event.target) + by];
  if (by && to) {
    event.preventDefault();
    to.focus();
  }
});

byId("back").addEventListener("click", () => go(place - 1));
byId("next").addEventListener("click", () => go(place + 1));
byId("submit").addEventListener("click", submit);
byId("help-open").addEventListener("click", () => byId("help").showModal());
document.addEventListener("visibilitychange", tick);
addEventListener("pagehide", () => {
  if (!hit || sending) return;
  tick();
  if (number) keep(hit.claim, { number, answers, seconds, place });
  drafts.flush();
});
addEventListener("pageshow", (event) => event.persisted && location.reload()); // what came back from the past may be out of date

tidy();
since = document.visibilityState === "visible" ? performance.now() : 0;
begin(JSON.parse(page.dataset.hit));
