// Where the focus goes when what has it is taken from the page, and how it stays where nothing can be done just now.

/** Whether the focus of a field brings a keyboard that hides half of the page. */
export const isTouched = window.matchMedia("(pointer: coarse)").matches;

/** Selector of fields that take a text. */
export const TEXT_FIELDS = "textarea, input:not([type=checkbox], [type=radio])";

const FOCUSABLE = "a[href], button:enabled, input:enabled, select:enabled, textarea:enabled";

/** What had the focus last, `{element, area, rows}`, and `{row, place}` if that is in a row; or null. */
let last = null;

const rowsIn = (area) => [...area.querySelectorAll("li")];

function remember() {
  const element = document.activeElement;
  const row = element.closest("li:not(.markdown *)");
  const area = element.closest(row ? "form, main, aside" : "main, .sessions, .notices");
  const place = row && [...row.querySelectorAll(FOCUSABLE)].indexOf(element);
  last = area && { element, area, rows: rowsIn(area), row, place };
}

/** Give the focus to the message box, or what else the page is for. */
export function focusMain() {
  const message = window.matchMedia("(pointer: fine)").matches && document.getElementById("message");
  (message || document.querySelector("main .scroller[tabindex]") || document.querySelector("main"))?.focus();
}

/**
 * Give the focus to the same row at its new place, to its neighbour, or to what is beside the list;
 * from what has shown more of a list to the first row that it has shown; else to the message.
 */
function focusNeighbour({ row, place, rows, area }) {
  const isSame = (one, other) => one.dataset.row && one.dataset.row === other.dataset.row;
  if (!row) {
    const isNew = (each) => each.dataset.row && !rows.some((other) => isSame(each, other));
    const shown = area.isConnected && rowsIn(area).find(isNew);
    if (shown) shown.querySelector(FOCUSABLE).focus();
    else focusMain();
    return;
  }
  const moved = rowsIn(area).find((each) => isSame(each, row));
  if (moved) {
    const all = [...moved.querySelectorAll(FOCUSABLE)];
    (all[place] ?? all[0])?.focus(); // an open menu of the row is gone
    return;
  }
  const index = rows.indexOf(row);
  const isLeft = (each) => each.isConnected && each.querySelector(FOCUSABLE);
  const next = rows.slice(index).find(isLeft) ?? rows.slice(0, index).findLast(isLeft);
  if (next) next.querySelector(FOCUSABLE).focus();
  else if (area.querySelector("#search")) area.querySelector("#search").focus();
  else focusMain();
}

/** Refuse a click on what takes nothing just now. `disabled` would do so too, and take the focus away. */
function refuse(event) {
  if (!event.target.closest("[aria-disabled=true]")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}

/** Keep the focus when what has it leaves the page, or comes to another place in its list, below this element. */
export function keepFocus(root) {
  // A click on what has the focus already is no other focus; one beside everything takes it away.
  for (const type of ["focusin", "click"]) document.addEventListener(type, remember, true);
  document.addEventListener("click", refuse, true);
  new MutationObserver((records) => {
    if (!last || document.activeElement !== document.body) return;
    if (last.element.isConnected) {
      // What comes to another place is taken out and put in again.
      const isIn = (node) => node.contains(last.element);
      if (records.some(({ addedNodes }) => [...addedNodes].some(isIn))) last.element.focus({ preventScroll: true });
      return;
    }
    const lost = last;
    last = null;
    focusNeighbour(lost);
  }).observe(root, { childList: true, subtree: true });
}
