// A slider without numbers and without a start value: the thumb appears with the first use.
// It is a native range input, so that screen readers can move it; they read its position in words.

import { make } from "./draw.js";

const STEPS = 1000; // one step is 0.005 on a slider from 0 to 5
const LARGE_STEP = STEPS / 10;

/** Draw a slider; `show(value)` sets its position, or none. */
export function drawSlider(question, number, onAnswer) {
  const input = make("input", "slider", "", {
    type: "range", min: 0, max: STEPS, step: 1, "aria-label": question.text, "aria-describedby": `criterion-${number}`,
  });
  const criterion = make("p", "criterion", "", { id: `criterion-${number}` });
  const anchors = make("div", "anchors");
  const buttons = question.options.map((option) => drawAnchor(option, anchors));
  const spread = 1 / Math.max(1, question.options.length - 1);
  let isSet = false;

  const explain = (option, marked = option) => {
    buttons.forEach((button, n) => button.classList.toggle("near", question.options[n] === marked));
    criterion.replaceChildren();
    if (!option) {
      criterion.textContent = isSet ? "" : "Click or drag anywhere on the line.";
      return;
    }
    criterion.append(make("strong", "", option.text));
    if (option.hint) criterion.append(` – ${option.hint}`);
  };
  const nearest = () => nearestOption(question.options, input.valueAsNumber / STEPS);
  const explainNearest = () => explain(isSet ? nearest() : null);
  const mark = () => {
    input.classList.toggle("unused", !isSet);
    input.setAttribute("aria-valuetext", isSet ? describePosition(question.options, input.valueAsNumber / STEPS, spread) : "not answered yet");
    explainNearest();
  };
  const reportValue = () => {
    isSet = true;
    mark();
    onAnswer(Number((question.low + ((question.high - question.low) * input.valueAsNumber) / STEPS).toFixed(6)));
  };
  const place = (at) => {
    input.value = String(Math.max(0, Math.min(STEPS, at)));
    reportValue();
  };

  input.addEventListener("input", reportValue);
  input.addEventListener("pointerup", () => isSet || reportValue()); // a click exactly on the hidden thumb fires no input event
  input.addEventListener("keydown", (event) => {
    const to = positionAfterKey(event, isSet ? input.valueAsNumber : null);
    if (to === null) return;
    event.preventDefault();
    place(to);
  });
  buttons.forEach((button, n) => {
    for (const name of ["pointerenter", "focus", "click"]) button.addEventListener(name, () => explain(question.options[n]));
    for (const name of ["pointerleave", "blur"]) button.addEventListener(name, explainNearest);
  });

  const show = (value) => {
    isSet = value !== undefined;
    if (isSet) input.value = String(Math.round((STEPS * (value - question.low)) / (question.high - question.low)));
    mark();
  };
  const box = make("div", "sliding");
  box.append(input, anchors);
  return { elements: [box, criterion], show, focus: () => input.focus() };
}

/** The position after a key press; null if the key does not move the slider. Without a position, it starts at the opposite end. */
function positionAfterKey(event, from) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const step = event.repeat ? 10 : 2; // faster while a key is held down
  const by = { ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step, PageUp: LARGE_STEP, PageDown: -LARGE_STEP }[event.key];
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

function nearestOption(options, at) {
  const distance = (option) => Math.abs(option.at - at);
  return options.reduce((best, option) => (!best || distance(option) < distance(best) ? option : best), null);
}

/** The position in words, for screen readers. */
function describePosition(options, at, spread) {
  const best = nearestOption(options, at);
  if (!best) return "answered";
  if (Math.abs(best.at - at) < 0.15 * spread) return best.text;
  const others = options.filter((option) => (at > best.at ? option.at > best.at : option.at < best.at));
  const other = nearestOption(others, at);
  return other ? `between ${best.text} and ${other.text}, closer to ${best.text}` : best.text;
}
