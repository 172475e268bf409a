// Short messages at the edge of the page, and actions that can be undone for a while.

import { effect, isUsed, signal } from "../library.js";
import { route } from "../router.js";
import { t } from "../texts.js";

const MILLISECONDS = 7000;
const LONGER = 1000; // milliseconds
const MOST = 4; // more only where they are above an action, which would move

/** `{id, text, kind, action: {label, run} or null}` each, the oldest first. */
export const notices = signal([]);

let count = 0;

/** Take a notice away, and do what could be undone as long as it was shown. */
export function dismiss(id) {
  const notice = notices.peek().find((each) => each.id === id);
  notices.value = notices.peek().filter((each) => each !== notice);
  notice?.onGone();
}

/**
 * Dismiss a notice after a while, but not while a person is at them: an *Undo* would slide away from
 * the pointer.
 */
function dismissLater(id, milliseconds = MILLISECONDS) {
  const isInUse = () => isUsed(document.querySelector(".notices"));
  setTimeout(() => (isInUse() ? dismissLater(id, LONGER) : dismiss(id)), milliseconds);
}

export function notify(text, { kind = "info", action = null, onGone = () => {} } = {}) {
  count += 1;
  const id = count;
  const shown = notices.peek();
  const last = shown.findLastIndex((notice) => notice.action);
  const kept = shown.filter((_, index) => index <= last || index > shown.length - MOST);
  notices.value = [...kept, { id, text, kind, action, onGone, place: location.hash }];
  dismissLater(id);
  return id;
}

// What went wrong on one page is not about the next one.
effect(() => {
  route.value; // eslint-disable-line no-unused-expressions -- the effect depends on it
  notices.value = notices.peek().filter(({ kind, place }) => kind !== "error" || place === location.hash);
});

export function fail(error) {
  if (error?.name === "AbortError") return;
  notify(error?.message ?? String(error), { kind: "error" });
}

/** Run a function of a button; what goes wrong is shown. Resolves to whether it went well. */
export async function attempt(action) {
  try {
    await action();
    return true;
  } catch (error) {
    fail(error);
    return false;
  }
}

/** Do something when its notice is gone, or the page is left, unless the person undoes it. */
export function doUnlessUndone(text, { run, undo }) {
  let isUndone = false;
  const id = notify(text, {
    action: {
      label: t.undo,
      run: () => {
        isUndone = true;
        dismiss(id);
      },
    },
    onGone: () => (isUndone ? undo() : attempt(run)),
  });
}

/** Undo what was done last, if it still can be. Return whether it could. */
export function undoLast() {
  const last = notices.peek().findLast(({ action }) => action);
  last?.action.run();
  return Boolean(last);
}

window.addEventListener("pagehide", () => notices.peek().forEach(({ id }) => dismiss(id)));
