// Short messages at the edge of the page, and actions that can be undone for a while.

import { effect, isUsed, signal } from "../library.js";
import { route } from "../router.js";
import { t } from "../texts.js";

const MILLISECONDS = 7000;
const LONGER = 1000; // milliseconds
const MOST = 4; // more only where older ones have an action

/** `{id, text, kind, action: {label, run} or null}` each, the oldest first. */
export const notices = signal([]);

let count = 0;

export function dismiss(id) {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

/** Do something after a while, but not while a person is at the notices: an *Undo* would slide away from the pointer. */
function later(run) {
  let timer;
  const wait = (milliseconds) => {
    timer = setTimeout(() => (isUsed(document.querySelector(".notices")) ? wait(LONGER) : run()), milliseconds);
  };
  wait(MILLISECONDS);
  return () => clearTimeout(timer);
}

export function notify(text, { kind = "info", action = null } = {}) {
  count += 1;
  const id = count;
  const latest = notices.value.slice(1 - MOST);
  const kept = notices.value.filter((notice) => notice.action || latest.includes(notice));
  notices.value = [...kept, { id, text, kind, action, place: location.hash }];
  later(() => dismiss(id));
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
    stop();
    attempt(run);
  };
  const stop = later(() => {
    dismiss(id);
    commit();
  });
  waiting.add(commit);
  const id = notify(text, {
    action: {
      label: t.undo,
      run: () => {
        waiting.delete(commit);
        stop();
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
