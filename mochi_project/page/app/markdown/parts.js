// A long list, table, quotation or paragraph in parts, each a block of its own: no step takes long.

const MOST = 3_000; // about as many elements of a table
const MOST_OF_PARAGRAPH = 1_000; // each of its marks is looked for in all of it
const mostOf = ({ type }) => (type === "paragraph" ? MOST_OF_PARAGRAPH : MOST);

/** Return about how long it takes to lay out a text: items and formulas as long as five cells, 25 characters as one. */
function weigh(raw) {
  const heavy = raw.match(/[\n$\\]/g)?.length ?? 0;
  const light = raw.match(/[|*_`~[<]/g)?.length ?? 0;
  return 5 * heavy + light + raw.length / 25;
}

const linesOf = (raw) => raw.split(/(?<=\n)/);

/** Return the lines of a quotation, those of each block in it together. */
function quoted({ raw, tokens }) {
  const lines = linesOf(raw);
  const units = tokens.flatMap(unitsOf).map((unit) => (
    { ...unit, raw: lines.splice(0, unit.raw.split("\n").length - 1).join("") }));
  return [...units, ...lines.map((line) => ({ raw: line }))];
}

/** Return what a block may be cut between: `{raw, start}`, as it is written, and the number of an item. */
function unitsOf(token) {
  const { type, raw, items, ordered, start } = token;
  if (weigh(raw) <= mostOf(token)) return [{ raw }];
  if (type === "list") return items.map((item, index) => ({ raw: item.raw, start: ordered ? start + index : null }));
  if (type === "blockquote") return quoted(token);
  const lines = type === "table" || type === "paragraph" ? linesOf(raw) : [raw];
  if (type === "table") lines.unshift(lines.splice(0, 3).join("")); // no part is the head alone
  return lines.map((line) => ({ raw: line }));
}

/** Give the list that a part begins with its number: each item may be written with the same one. */
export function startAt([token], start) {
  if (token?.type === "blockquote") startAt(token.tokens, start);
  else if (token?.type === "list" && token.ordered) token.start = start;
}

/**
 * Return the parts of a block: `{raw, head, start}`, what is written, what is read in front of it, and the
 * number that a list in it goes on with, or null. In front is the head of a table, which is seen above each part.
 */
export function partsOf(token) {
  const units = unitsOf(token);
  const head = token.type === "table" ? linesOf(token.raw).slice(0, 2).join("") : "";
  const parts = [];
  let left = 0;
  let length = 0;
  for (const { raw, start = null } of units) {
    const weight = weigh(raw);
    if (parts.length > 0 && weight <= left) parts.at(-1).raw += raw;
    else {
      // What is in front counts in each part: it is cut at the same places if it arrives in pieces.
      left = mostOf(token) - (parts.length > 0 ? weigh(head) : 0);
      parts.push(parts.length > 0 ? { raw, head, start } : { raw, head: "", start: null });
    }
    left -= weight;
    length += raw.length;
  }
  parts.at(-1).raw += token.raw.slice(length); // the end of its last line
  return parts;
}

const MOST_LINES = 100;
const MOST_CHARACTERS = 4_000; // of these lines; a longer one is a part of its own

/** Return the parts of code, each of whole lines: only those that are seen or new are laid out. */
export function partsOfCode(text) {
  const parts = [];
  let lines = MOST_LINES;
  for (const line of linesOf(text)) {
    lines += 1;
    if (lines <= MOST_LINES && parts.at(-1).length + line.length <= MOST_CHARACTERS) parts[parts.length - 1] += line;
    else {
      parts.push(line);
      lines = 1;
    }
  }
  return parts;
}
