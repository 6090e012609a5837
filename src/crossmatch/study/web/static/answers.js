// Answers to an item: which questions apply, which are unanswered, what is sent. No access to the page.

/** The questions that apply given these answers, in order. */
export function applicableQuestions(item, answer) {
  const questions = [];
  const earlier = {};
  for (const question of item.questions) {
    if (question.after && ![earlier[question.after]].flat().some((value) => question.when.includes(value))) continue;
    questions.push(question);
    earlier[question.name] = answer[question.name];
  }
  return questions;
}

/** The answer without questions that do not apply and without invalid values. */
export function cleanAnswer(item, answer) {
  const result = {};
  for (const question of item.questions) {
    if (!applicableQuestions(item, result).includes(question)) continue;
    const value = validValue(question, answer?.[question.name]);
    if (value !== undefined) result[question.name] = value;
  }
  return result;
}

function validValue(question, value) {
  if (question.kind === "slider") return Number.isFinite(value) && value >= question.low && value <= question.high ? value : undefined;
  const allowed = question.options.map((option) => option.value);
  if (question.kind === "choice") return allowed.includes(value) ? value : undefined;
  const selected = Array.isArray(value) ? allowed.filter((option) => value.includes(option)) : [];
  return selected.length ? selected : undefined;
}

/** The first unanswered question, if any. */
export function firstUnanswered(item, answer) {
  return applicableQuestions(item, answer).find((question) => answer[question.name] === undefined);
}

export function isComplete(item, answer) {
  return firstUnanswered(item, answer) === undefined;
}
