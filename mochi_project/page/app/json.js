// JSON in which numbers stay as they are written: 2.0 is no 2, and a long number keeps its digits.
//
// Browsers before those of 2025 do not say how a number is written; there it is written as JavaScript does.

/** Numbers that JavaScript may write otherwise: with 16 digits or more, an exponent, or zeros at the end of a fraction. */
const MAY_DIFFER = /[[:,]\s*-?(?:\d{16}|\d{1,15}(?:[eE]|\.\d*(?:0\b|[eE])))/;

/** How such numbers are written, by their object or list, and by their name in it. */
const written = new WeakMap();

function keep(name, value, context) {
  if (typeof value === "number" && context && context.source !== `${value}`) {
    if (!written.has(this)) written.set(this, new Map());
    written.get(this).set(name, context.source);
  }
  return value;
}

/** Return how the number is written that an object or a list has by a name; undefined if it is another one now. */
function sourceOf(values, name) {
  const source = written.get(values)?.get(name);
  return Number(source) === values[name] ? source : undefined;
}

function write(name, value) {
  const source = sourceOf(this, name);
  return source === undefined ? value : JSON.rawJSON(source);
}

export const parse = (text) => JSON.parse(text, MAY_DIFFER.test(text) ? keep : undefined);
export const stringify = (value, indent) => JSON.stringify(value, write, indent);

/** Return the JSON of what an object or a list has by a name. */
export const memberText = (values, name) => sourceOf(values, name) ?? stringify(values[name]);
