// The page of a HIT: one item at a time, drafts on the way, and the next HIT afterwards.

import { applicableQuestions, cleanAnswer, isComplete, firstUnanswered } from "./answers.js";
import { drawItem, KEYS, make } from "./draw.js";
import { Drafts, deleteStored, retryUntilAnswered, store, loadStored, RequestError, send, deleteOld } from "./drafts.js";
import { makeViewer } from "./viewer.js";

const byId = (id) => document.getElementById(id);
const page = byId("work");
const viewer = makeViewer();

let hit = null; // as sent by the server
let answers = []; // one object per item: question name to value
let seconds = []; // that each item was visible
let number = 0; // number of the newest draft
let place = 0; // index of the visible item
let since = 0; // when its timer started; 0: stopped
let drawn = null; // the visible item
let current = null; // the question that key presses answer
let drafts = null;
let sending = false;
let done = Number(page.dataset.done);

// -- a HIT

/** Show a HIT with the newest draft, from this browser or from the server. */
function startHit(newHit) {
  hit = newHit;
  const here = loadStored(hit.claim);
  const there = hit.draft.answers ? hit.draft : null;
  const newest = here && here.number >= hit.draft.number ? here : there;
  answers = hit.items.map((item, n) => cleanAnswer(item, newest?.answers[n]));
  seconds = hit.items.map((_, n) => (Number.isFinite(here?.seconds?.[n]) ? here.seconds[n] : 0));
  number = Math.max(here?.number ?? 0, hit.draft.number);
  drafts = new Drafts(hit.claim, showStatus);
  if (here && here.number > hit.draft.number) drafts.put(number, answers);
  sending = false;
  byId("dots").replaceChildren(...(hit.items.length > 1 ? hit.items.map(drawDot) : []));
  showLease(hit.lease);
  showStatus("");
  const unanswered = hit.items.findIndex((item, n) => !isComplete(item, answers[n]));
  showItem(hit.items[here?.place] ? here.place : Math.max(0, unanswered), false);
}

/** Show an item. */
function showItem(to, focus = true) {
  if (to < 0 || to >= hit.items.length || sending) return;
  updateTimer();
  place = to;
  const item = hit.items[place];
  current = firstUnanswered(item, answers[place]) ?? item.questions[0];
  drawn = drawItem(item, setAnswer, (n) => viewer.open(item, n), activate);
  byId("item").replaceChildren(drawn.element);
  byId("where").textContent = heading();
  refresh();
  scrollTo(0, 0);
  if (focus) byId("where").focus({ preventScroll: true });
  for (const address of hit.items[place + 1]?.images ?? []) new Image().src = address; // preload
}

function heading() {
  const what = hit.quiz ? "Test question" : "Question";
  const blocks = [...new Set(hit.items.map((item) => item.block))];
  const part = blocks.length > 1 ? `Part ${blocks.indexOf(hit.items[place].block) + 1} of ${blocks.length} · ` : "";
  return hit.items.length > 1 ? `${part}${what} ${place + 1} of ${hit.items.length}` : `${what} ${done + 1}`;
}

function drawDot(_, n) {
  const dot = make("button", "dot", String(n + 1), { type: "button" });
  dot.addEventListener("click", () => showItem(n));
  return dot;
}

// -- answers

function setAnswer(question, value) {
  const item = hit.items[place];
  answers[place] = cleanAnswer(item, { ...answers[place], [question.name]: value });
  const after = applicableQuestions(item, answers[place]);
  const follows = after[after.indexOf(question) + 1];
  const moves = question.kind === "choice" && follows && answers[place][follows.name] === undefined;
  current = moves ? follows : question; // with multiple choice, keys stay at the question until Enter
  refresh();
  if (moves) drawn.reveal(current);
  showError("");
  remember();
}

function activate(question) {
  if (current === question) return;
  current = question;
  drawn.refresh(answers[place], current);
}

function remember() {
  updateTimer();
  number += 1;
  store(hit.claim, { number, answers, seconds, place });
  drafts.put(number, structuredClone(answers));
  byId("saved").textContent = "";
}

/** Update progress and buttons. */
function refresh() {
  drawn.refresh(answers[place], current);
  const finished = hit.items.map((item, n) => isComplete(item, answers[n]));
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

/** Add the time since the last call, if the page was visible. */
function updateTimer() {
  const now = performance.now();
  if (since && hit) seconds[place] += (now - since) / 1000;
  since = document.visibilityState === "visible" ? now : 0;
}

// -- messages

/** Show until when the task is reserved; a quiz has no limit. */
function showLease(lease) {
  const until = new Date(1000 * lease).toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" });
  byId("lease").hidden = !lease;
  byId("lease").textContent = lease ? `This task is reserved for you until ${until}. Answering extends the time.` : "";
}

function showStatus(what, reply) {
  if (reply?.lease) showLease(reply.lease); // answering extends the lease
  const status = byId("status-note");
  const lost = what === "lost";
  if (what instanceof RequestError) showError(what.message);
  if (status.hidden === lost) status.hidden = !lost; // changed only if needed, so that screen readers read it once
  if (lost && !status.textContent) status.textContent = "Not connected. Your answers are stored in this browser and sent when the connection is back.";
  if (!lost) status.textContent = "";
  byId("saved").textContent = what === "saved" ? "Saved" : "";
}

function showError(text) {
  byId("error").hidden = !text;
  byId("error").textContent = text ? text[0].toUpperCase() + text.slice(1) : "";
}

// -- submitting, and the next HIT

async function submit() {
  if (sending || byId("submit").disabled) return;
  updateTimer();
  sending = true;
  drafts.end();
  showError("");
  refresh();
  try {
    const body = { answers, seconds: seconds.map((s) => Math.round(10 * s) / 10) };
    const receipt = await retryUntilAnswered(() => send("POST", `/api/h/${hit.claim}/submit`, body), () => showStatus("lost"));
    showStatus("");
    deleteStored(hit.claim);
    if (!hit.quiz) done += 1;
    await next(receipt);
  } catch (error) {
    sending = false;
    drafts = new Drafts(hit.claim, showStatus);
    refresh();
    showError(error instanceof RequestError ? error.message : "Something went wrong on this page. Reload it; your answers are stored.");
  }
}

/** Show the next HIT, or go back to the study if there is none. */
async function next(receipt) {
  let newHit;
  try {
    newHit = await retryUntilAnswered(() => send("POST", `/api/s/${hit.study}/claim`, {}), () => showStatus("lost"));
  } catch (error) {
    const why = error.reply?.why ?? "";
    location.replace(`/s/${hit.study}${why ? `?end=${encodeURIComponent(why)}` : ""}`);
    return;
  }
  history.replaceState(null, "", `/h/${newHit.claim}`);
  since = 0;
  hit = null;
  startHit(newHit);
  byId("where").focus({ preventScroll: true });
  if (receipt.passed) showNote("You passed the test. The actual task starts now.");
  if (receipt.passed === null && !receipt.counted) showNote("That task had been given to somebody else in the meantime. Your answers were stored, but do not count.");
}

function showNote(text) {
  byId("status-note").textContent = text;
  byId("status-note").hidden = false;
}

// -- keys

function continueOrSubmit() {
  const left = firstUnanswered(hit.items[place], answers[place]);
  if (left) {
    current = left;
    drawn.refresh(answers[place], current);
    drawn.reveal(current);
    showError("Answer the question first, or use the arrow keys to skip it.");
  } else if (place < hit.items.length - 1) {
    showItem(place + 1);
  } else if (byId("submit").disabled && !sending) {
    showItem(hit.items.findIndex((item, n) => !isComplete(item, answers[n])));
  } else {
    submit();
  }
}

function choose(n) {
  const option = current?.kind === "slider" ? null : current?.options[n];
  if (!option || sending) return;
  const before = answers[place][current.name] ?? [];
  const question = current;
  if (question.kind === "choice") setAnswer(question, option.value);
  else setAnswer(question, before.includes(option.value) ? before.filter((value) => value !== option.value) : [...before, option.value]);
  const focused = document.activeElement;
  if (focused?.name && focused.closest("fieldset")?.contains(focused) && question.kind === "choice") drawn.focus(question);
}

const SHORTCUTS = {
  ArrowLeft: () => showItem(place - 1),
  ArrowRight: () => showItem(place + 1),
  Enter: continueOrSubmit,
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
  else if (SHORTCUTS[key]) SHORTCUTS[key]();
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

byId("back").addEventListener("click", () => showItem(place - 1));
byId("next").addEventListener("click", () => showItem(place + 1));
byId("submit").addEventListener("click", submit);
byId("help-open").addEventListener("click", () => byId("help").showModal());
document.addEventListener("visibilitychange", updateTimer);
addEventListener("pagehide", () => {
  if (!hit || sending) return;
  updateTimer();
  if (number) store(hit.claim, { number, answers, seconds, place });
  drafts.flush();
});
addEventListener("pageshow", (event) => event.persisted && location.reload()); // a page from the back-forward cache may be outdated

deleteOld();
since = document.visibilityState === "visible" ? performance.now() : 0;
startHit(JSON.parse(page.dataset.hit));
