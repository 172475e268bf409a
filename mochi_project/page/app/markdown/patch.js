// Changes elements into others, and keeps what is the same: only what is new is laid out again.

function isSameElement(before, after) {
  return before.nodeName === after.nodeName && before.cloneNode(false).isEqualNode(after.cloneNode(false));
}

function isSame(before, after) {
  const formula = after.dataset?.formula;
  if (formula) return before.dataset?.formula === formula; // it may be shown as a formula already
  return before.isEqualNode(after);
}

/** Give an element the content of another one, which loses it. */
export function patch(element, other) {
  const present = [...element.childNodes];
  const wanted = [...other.childNodes];
  wanted.forEach((after, index) => {
    const before = present[index];
    if (!before) element.append(after);
    else if (isSame(before, after)) return;
    else if (before.nodeType === Node.TEXT_NODE && after.nodeType === Node.TEXT_NODE) {
      before.data = after.data;
    } else if (before.nodeType === Node.ELEMENT_NODE && isSameElement(before, after)) {
      patch(before, after);
    } else before.replaceWith(after);
  });
  for (const extra of present.slice(wanted.length)) extra.remove();
}
