// Draws an item. Captions and names are inserted as text, never as markup.

import { applicableQuestions } from "./answers.js";
import { drawSlider } from "./slider.js";

export const KEYS = "1234567890";

/** Create an element with a class, a text and attributes. */
export function make(tag, name = "", text = "", more = {}) {
  const out = document.createElement(tag);
  if (name) out.className = name;
  if (text) out.textContent = text;
  for (const [key, value] of Object.entries(more)) out.setAttribute(key, value);
  return out;
}

/**
 * Draw an item: its images and captions, and the questions.
 * Callbacks: `onAnswer(question, value)`, `enlarge(n)` to enlarge image n, `onFocus(question)`.
 * Returns the `element` and `refresh(answer, current)`, which shows an answer and highlights the current question.
 */
export function drawItem(item, onAnswer, enlarge, onFocus) {
  const sides = new Set(item.questions.flatMap((question) => question.options.map((option) => option.shown)));
  const chooseAmongImages = sides.has("images") || sides.has("lists");
  const element = make("article", "item");
  element.setAttribute("aria-labelledby", "where");
  const seen = make("div", "seen");
  const rest = make("div", "rest");
  if (item.images.length && !chooseAmongImages) seen.append(drawImages(item, enlarge));
  const isBeside = item.images.length === 1 && !chooseAmongImages; // the questions stand beside the image, below the captions
  if (item.captions.length && !sides.has("captions")) (isBeside ? rest : seen).append(drawCaptions(item.captions));
  element.classList.toggle("beside", isBeside);
  element.append(seen);
  const fields = item.questions.map((question, n) => drawQuestion(item, question, n, onAnswer, enlarge));
  fields.forEach((field, n) => field.element.addEventListener("focusin", () => onFocus(item.questions[n])));
  rest.append(...fields.map((field) => field.element));
  element.append(rest);
  const refresh = (answer, current) => {
    const now = applicableQuestions(item, answer);
    fields.forEach((field, n) => {
      const question = item.questions[n];
      field.element.hidden = !now.includes(question);
      field.element.classList.toggle("active", question === current);
      field.show(answer[question.name]);
    });
  };
  const reveal = (question) => fields[item.questions.indexOf(question)]?.element.scrollIntoView({ block: "nearest" });
  return { element, refresh, reveal, focus: (question) => fields[item.questions.indexOf(question)]?.focus() };
}

// -- images and captions

function drawImages(item, enlarge) {
  if (item.lists) {
    const out = make("div", "lists");
    for (let which = 0; which < item.lists; which++) {
      const list = make("div", "list");
      list.append(make("p", "label", listName(which)), drawList(item, which, enlarge));
      out.append(list);
    }
    return out;
  }
  const out = make("div", `pictures ${shape(item.images.length)}`);
  item.images.forEach((_, n) => {
    const figure = make("figure");
    const image = drawImage(item, n);
    image.classList.add("opens");
    image.addEventListener("click", () => enlarge(n));
    if (item.images.length > 1) figure.append(make("figcaption", "label", item.labels[n] ?? item.places[n]));
    figure.append(withZoomButton(image, item, n, enlarge));
    out.append(figure);
  });
  return out;
}

const shape = (n) => ({ 1: "single", 2: "pair" })[n] ?? "four";
const listName = (n) => `List ${"ABCDEFGHIJ"[n]}`;

/** An image that is marked if it does not load, and retried. */
function drawImage(item, n) {
  const image = make("img", "", "", { alt: item.places[n], decoding: "async" });
  const retry = () => {
    removeEventListener("online", retry);
    if (image.isConnected) image.src = `${item.images[n]}?retry=${Date.now()}`;
  };
  let tries = 0;
  image.addEventListener("load", () => image.classList.remove("absent"));
  image.addEventListener("error", () => {
    image.classList.add("absent");
    addEventListener("online", retry);
    if (tries++ < 3) setTimeout(retry, 2000 * tries);
  });
  image.src = item.images[n];
  return image;
}

/** An image with a button that enlarges it. */
function withZoomButton(image, item, n, enlarge) {
  const frame = make("div", "frame");
  const button = make("button", "zoom", "", { type: "button", "aria-label": `Enlarge: ${item.places[n]}` });
  button.addEventListener("click", () => enlarge(n));
  frame.append(image, button);
  return frame;
}

function drawList(item, which) {
  const size = item.images.length / item.lists;
  const row = make("span", "ranked");
  row.style.setProperty("--columns", size > 6 ? Math.ceil(size / 2) : size);
  for (let n = 0; n < size; n++) {
    const place = make("span", "rank");
    place.append(drawImage(item, which * size + n), make("span", "badge", String(n + 1), { "aria-hidden": "true" }));
    row.append(place);
  }
  return row;
}

function drawCaptions(captions) {
  const out = make("div", captions.length === 2 ? "captions pair" : "captions");
  captions.forEach((text, n) => {
    const box = make("div", "caption-text");
    if (captions.length > 1) box.append(make("p", "label", captions.length === 2 ? ["First sentence", "Second sentence"][n] : `Sentence ${n + 1}`));
    box.append(make("p", "quote", text, { dir: "auto" }));
    out.append(box);
  });
  return out;
}

// -- questions

function drawQuestion(item, question, number, onAnswer, enlarge) {
  const element = make("fieldset", "question");
  element.append(make("legend", "", question.text));
  if (question.kind === "slider") {
    const slider = drawSlider(question, number, (value) => onAnswer(question, value));
    element.append(...slider.elements);
    return { element, show: slider.show, focus: slider.focus };
  }
  const options = question.options.map((option, n) => drawOption(item, question, option, n, number, onAnswer, enlarge));
  const shown = question.options.find((option) => option.shown)?.shown;
  const seen = options.filter((_, n) => question.options[n].shown);
  const plain = options.filter((_, n) => !question.options[n].shown);
  if (shown === "captions") element.append(group(options, "sentences"));
  else if (seen.length) element.append(group(seen, shown === "lists" ? "lists" : `pictures ${shape(seen.length)}`));
  if (plain.length && shown !== "captions") element.append(group(plain, plain.length > 5 ? "options compact" : seen.length ? "options few" : "options"));
  const show = (value) => {
    const values = [value].flat();
    options.forEach((one, n) => {
      one.input.checked = values.includes(question.options[n].value);
      one.label.classList.toggle("chosen", one.input.checked);
    });
  };
  const focus = () => (options.find((one) => one.input.checked) ?? options[0]).input.focus();
  return { element, show, focus };
}

function group(options, name) {
  const out = make("div", name);
  out.append(...options.map((one) => one.element));
  return out;
}

function drawOption(item, question, option, n, number, onAnswer, enlarge) {
  const several = question.kind === "several";
  const label = make("label", `option ${option.shown}`.trim());
  const input = make("input", "", "", { type: several ? "checkbox" : "radio", name: `question-${number}`, value: option.value });
  input.addEventListener("change", () => {
    const ticked = [...input.closest("fieldset").querySelectorAll("input:checked")].map((one) => one.value);
    onAnswer(question, several ? ticked : option.value);
  });
  let wasClicked = false; // after a click, arrow keys go to the next question instead of changing the answer
  label.addEventListener("pointerdown", () => (wasClicked = true));
  input.addEventListener("click", () => {
    if (wasClicked) input.blur();
    wasClicked = false;
  });
  const line = make("span", "line");
  const words = make("span", "words", option.text, { dir: "auto" });
  if (option.hint) words.append(make("span", "hint", option.hint));
  line.append(input, words);
  if (n < KEYS.length) line.append(make("kbd", "", KEYS[n], { "aria-hidden": "true" }));
  label.append(line);
  if (option.shown === "lists") label.append(drawList(item, option.place));
  if (option.shown === "images") {
    words.setAttribute("aria-hidden", "true"); // the image has the same text
    label.prepend(drawImage(item, option.place));
  }
  return { element: option.shown === "images" || option.shown === "lists" ? withSeparateZoom(label, item, option, enlarge) : label, label, input };
}

/** An image or list to choose, with a separate button that enlarges it. */
function withSeparateZoom(label, item, option, enlarge) {
  const out = make("div", "choice");
  const first = option.shown === "lists" ? (option.place * item.images.length) / item.lists : option.place;
  const button = make("button", "zoom", "", { type: "button", "aria-label": `Enlarge: ${option.text}` });
  button.addEventListener("click", () => enlarge(first));
  out.append(label, button);
  return out;
}
