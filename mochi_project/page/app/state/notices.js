// Short messages at the edge of the page, and actions that can be undone for a while.

import { effect, signal } from "../library.js";
import { route } from "../router.js";
import { t } from "../texts.js";

const SECONDS = 7;

/** `{id, text, kind, action: {label, run} or null}` each, the oldest first. */
export const notices = signal([]);

let count = 0;

export function dismiss(id) {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

export function notify(text, { kind = "info", action = null, seconds = SECONDS } = {}) {
  count += 1;
  const id = count;
  notices.value = [...notices.value.slice(-3), { id, text, kind, action, place: location.hash }];
  setTimeout(() => dismiss(id), seconds * 1000);
  return id;
}

// What went wrong on one page is not about the next one.
effect(() => {
  route.value; // eslint-disable-line no-unused-expressions -- the effect depends on it
  notices.value = notices.peek().filter(({ kind, place }) => kind !== "error" || place === location.hash);
});

export function fail(error) {
  if (error?.name === "AbortError" || error?.status === 401) return; // the page asks for the token
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

const waiting = new Set();

/** Do something after a while, unless the person undoes it; at once when the page is left. */
export function doUnlessUndone(text, { run, undo }) {
  const commit = () => {
    if (!waiting.delete(commit)) return;
    clearTimeout(timer);
    attempt(run);
  };
  const timer = setTimeout(() => {
    dismiss(id);
    commit();
  }, SECONDS * 1000);
  waiting.add(commit);
  const id = notify(text, {
    seconds: SECONDS,
    action: {
      label: t.undo,
      run: () => {
        waiting.delete(commit);
        clearTimeout(timer);
        dismiss(id);
        undo();
      },
    },
  });
}

/** Undo what was done last, if it still can be. Return whether it could. */
export function undoLast() {
  const last = notices.peek().findLast(({ action }) => action);
  last?.action.run();
  return Boolean(last);
}

window.addEventListener("pagehide", () => [...waiting].forEach((commit) => commit()));
