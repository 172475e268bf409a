// The parts of an answer, as they are shown: texts, thinking, calls of tools, agents.
//
// A node is changed in place; its `version`, and those of all nodes above it, grow with each change,
// so a view knows whether to draw it again.

export function makeNode(kind, values = {}) {
  return { key: 0, kind, version: 0, parent: null, children: [], ...values };
}

export function touch(node) {
  for (let each = node; each; each = each.parent) each.version += 1;
}

export function add(parent, node) {
  node.parent = parent;
  node.key = parent.children.length; // of a stored answer the same as while it was written
  parent.children.push(node);
  touch(parent);
  return node;
}

export function change(node, values) {
  Object.assign(node, values);
  touch(node);
}

/** Add a piece of text to the last child, if it is one of this kind, else to a new one. */
export function addText(parent, kind, text) {
  const last = parent.children[parent.children.length - 1];
  if (last?.kind === kind) change(last, { text: last.text + text });
  else add(parent, makeNode(kind, { text }));
}

/** Return whether a part of an answer waits for a person. */
export function waitsForPerson(node) {
  return node.state === "asking" || Boolean(node.elicitation) || node.children.some(waitsForPerson);
}

export const isCall = (kind) => kind === "call" || kind === "agent";

/** Return the text of an answer, without thinking and calls. */
export function textOf(answer) {
  let whole = "";
  let isBehindCalls = false;
  for (const { kind, text } of answer.children) {
    if (kind === "text") {
      whole += isBehindCalls && whole ? `\n\n${text}` : text;
      isBehindCalls = false;
    } else if (isCall(kind)) isBehindCalls = true;
  }
  return whole;
}
