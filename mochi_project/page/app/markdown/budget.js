// The time that a block may take, and how deep it may nest: what a model writes never stops the page.

const MILLISECONDS = 30;
const DEEPEST = 40;

/** Characters, of all steps together, that take no long time; a machine that is busy is not the block's fault. */
const FREE = 3_000_000;

/** Characters times marks of one text; about what takes the time above. */
const MOST_WORK = 60_000_000;

let work = 0;
let end = Infinity;
let depth = 0;

/** That a block takes too long, or nests too deep, to be more than plain text. */
class TooMuch extends Error {}

/** Return what the function returns, or null if that is too much. */
export function withinBudget(action) {
  work = 0;
  depth = 0;
  end = performance.now() + MILLISECONDS;
  try {
    return action();
  } catch (error) {
    if (error instanceof TooMuch || error instanceof RangeError) return null; // the stack is full
    throw error;
  }
}

/** Return what the function returns, which reads what is inside of a list or a quotation. */
export function nested(action) {
  depth += 1;
  if (depth > DEEPEST) throw new TooMuch();
  const result = action();
  depth -= 1;
  return result;
}

function check(source) {
  work += source.length;
  if (work > FREE && performance.now() > end) throw new TooMuch();
}

/**
 * Check a text for marked before its spans are looked for. That goes through the whole text in one
 * step, for each bracket again: the time is known only when it is over.
 */
export function checkSpans(source) {
  const marks = source.match(/[*_~`<$\\]/g)?.length ?? 0;
  const brackets = source.match(/\[/g)?.length ?? 0;
  if (source.length * (marks + 10 * brackets) > MOST_WORK) throw new TooMuch();
}

/** Rules for marked that match nothing: they are asked at every step, and look at the time. */
export const timeChecks = [
  { name: "blockTime", level: "block", tokenizer: check },
  { name: "inlineTime", level: "inline", tokenizer: check },
];
