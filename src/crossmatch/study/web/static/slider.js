// A slider that shows no number and begins nowhere.
// It is the browser's own, so that every screen reader can move it; what is heard is in words, and the thumb comes with the first use.

import { make } from "./draw.js";

const STEPS = 1000; // of which the smallest move is one: 0.005 on a slider from 0 to 5
const FAR = STEPS / 10;

/** The elements of a slider; `show(value)` makes it stand somewhere, or nowhere. */
export function drawSlider(question, number, say) {
  const input = make("input", "slider", "", {
    type: "range", min: 0, max: STEPS, step: 1, "aria-label": question.text, "aria-describedby": `criterion-${number}`,
  });
  const criterion = make("p", "criterion", "", { id: `criterion-${number}` });
  const anchors = make("div", "anchors");
  const buttons = question.options.map((option) => drawAnchor(option, anchors));
  const spread = 1 / Math.max(1, question.options.length - 1);
  let used = false;

  const explain = (option, marked = option) => {
    buttons.forEach((button, n) => button.classList.toggle("near", question.options[n] === marked));
    criterion.replaceChildren();
    if (!option) {
      criterion.textContent = used ? "" : "Press or drag anywhere on the line.";
      return;
    }
    criterion.append(make("strong", "", option.text));
    if (option.hint) criterion.append(` – ${option.hint}`);
  };
  const nearest = () => near(question.options, input.valueAsNumber / STEPS);
  const rest = () => explain(used ? nearest() : null);
  const mark = () => {
    input.classList.toggle("unused", !used);
    input.setAttribute("aria-valuetext", used ? inWords(question.options, input.valueAsNumber / STEPS, spread) : "not answered yet");
    rest();
  };
  const tell = () => {
    used = true;
    mark();
    say(Number((question.low + ((question.high - question.low) * input.valueAsNumber) / STEPS).toFixed(6)));
  };
  const place = (at) => {
    input.value = String(Math.max(0, Math.min(STEPS, at)));
    tell();
  };

  input.addEventListener("input", tell);
  input.addEventListener("pointerup", () => used || tell()); // pressed exactly where the hidden thumb was
  input.addEventListener("keydown", (event) => {
    const to = moved(event, used ? input.valueAsNumber : null);
    if (to === null) return;
    event.preventDefault();
    place(to);
  });
  buttons.forEach((button, n) => {
    for (const name of ["pointerenter", "focus", "click"]) button.addEventListener(name, () => explain(question.options[n]));
    for (const name of ["pointerleave", "blur"]) button.addEventListener(name, rest);
  });

  const show = (value) => {
    used = value !== undefined;
    if (used) input.value = String(Math.round((STEPS * (value - question.low)) / (question.high - question.low)));
    mark();
  };
  const box = make("div", "sliding");
  box.append(input, anchors);
  return { elements: [box, criterion], show, focus: () => input.focus() };
}

/** Where a key moves to; null if it moves nothing. From nowhere, a key to the right begins at the left end, and the other way round. */
function moved(event, from) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const step = event.repeat ? 10 : 2; // a held key runs
  const by = { ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step, PageUp: FAR, PageDown: -FAR }[event.key];
  if (event.key === "Home") return 0;
  if (event.key === "End") return STEPS;
  if (by === undefined) return null;
  return from === null ? (by > 0 ? 0 : STEPS) : from + by;
}

function drawAnchor(option, anchors) {
  const button = make("button", "anchor", option.text, { type: "button" });
  if (option.hint) button.setAttribute("aria-description", option.hint);
  button.style.setProperty("--at", option.at);
  if (option.at <= 0) button.classList.add("first");
  if (option.at >= 1) button.classList.add("last");
  anchors.append(button);
  return button;
}

function near(options, at) {
  const far = (option) => Math.abs(option.at - at);
  return options.reduce((best, option) => (!best || far(option) < far(best) ? option : best), null);
}

/** Where the slider stands, for who cannot see it: between which words, and nearer to which. */
function inWords(options, at, spread) {
  const best = near(options, at);
  if (!best) return "answered";
  if (Math.abs(best.at - at) < 0.15 * spread) return best.text;
  const others = options.filter((option) => (at > best.at ? option.at > best.at : option.at < best.at));
  const other = near(others, at);
  return other ? `between ${best.text} and ${other.text}, nearer to ${best.text}` : best.text;
}
