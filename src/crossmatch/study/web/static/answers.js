// What an answer to an item is: which questions apply, what is still missing, what may be sent. Nothing here touches the page.

/** The questions that are asked after these answers, in their order. */
export function asked(item, answer) {
  const out = [];
  const said = {};
  for (const question of item.questions) {
    if (question.after && ![said[question.after]].flat().some((value) => question.when.includes(value))) continue;
    out.push(question);
    said[question.name] = answer[question.name];
  }
  return out;
}

/** The answer without what does not apply, or is no answer: as it is kept and sent. */
export function cleaned(item, answer) {
  const out = {};
  for (const question of item.questions) {
    if (!asked(item, out).includes(question)) continue;
    const value = valued(question, answer?.[question.name]);
    if (value !== undefined) out[question.name] = value;
  }
  return out;
}

function valued(question, value) {
  if (question.kind === "slider") return Number.isFinite(value) && value >= question.low && value <= question.high ? value : undefined;
  const known = question.options.map((option) => option.value);
  if (question.kind === "choice") return known.includes(value) ? value : undefined;
  const some = Array.isArray(value) ? known.filter((one) => value.includes(one)) : [];
  return some.length ? some : undefined;
}

/** The first question that has no answer yet, if any. */
export function missing(item, answer) {
  return asked(item, answer).find((question) => answer[question.name] === undefined);
}

export function complete(item, answer) {
  return missing(item, answer) === undefined;
}
