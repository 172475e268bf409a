// The list of sessions, as it is now on the server: other tabs and programs change it as well.

import { blob, get, part, patch, query, remove } from "../api.js";
import { batch, effect, signal } from "../library.js";
import { go, route } from "../router.js";
import { t } from "../texts.js";
import { connectionLost, tokenIsMissing } from "../api.js";
import { attempt, doUnlessUndone } from "./notices.js";

const PAGE = 60;
const POLL_MILLISECONDS = 2000;

export const sessions = signal([]);
export const problems = signal([]);
export const isLoaded = signal(false);
export const hasMore = signal(false);
export const filter = signal({ query: "", archived: false, tag: "" });

/** The filter by which `sessions` were found; another one may be on its way. */
export const foundBy = signal(filter.peek());

/** Runs that go on, by the id of their session. */
export const activeRuns = signal({});

/** Ids of sessions that are deleted unless the person undoes it. */
const deleted = signal([]);

let wanted = PAGE;
let latest = 0;

export function title(session) {
  return session.title || session.preview || t.newChat;
}

/** A search finds what is archived as well. */
function archivedOf(words, isOnlyArchived) {
  if (isOnlyArchived) return "true";
  return words.trim() ? "all" : "false";
}

async function load() {
  latest += 1;
  const number = latest;
  const asked = filter.peek();
  const { query: words, archived, tag } = asked;
  const answer = await get(
    `sessions${query({ query: words.trim(), archived: archivedOf(words, archived), tag, limit: wanted })}`,
  );
  if (number !== latest) return; // the filter has changed since
  const shown = answer.sessions.filter(({ session_id: id }) => !deleted.peek().includes(id));
  batch(() => {
    if (JSON.stringify(shown) !== JSON.stringify(sessions.peek())) sessions.value = shown;
    foundBy.value = asked;
    problems.value = answer.problems;
    hasMore.value = answer.next_cursor !== null;
    isLoaded.value = true;
  });
}

async function loadRuns() {
  const { runs } = await get("runs");
  const active = {};
  for (const run of runs) {
    if (["running", "waiting"].includes(run.state)) active[run.session_id] = run;
  }
  if (JSON.stringify(active) !== JSON.stringify(activeRuns.peek())) activeRuns.value = active;
}

export const refresh = () => attempt(load);

export function loadMore() {
  wanted += PAGE;
  return refresh();
}

/** Look for changes again and again while the page is seen. */
export function watch() {
  async function look() {
    if (document.visibilityState === "visible" && !tokenIsMissing.peek()) {
      try {
        await Promise.all([load(), loadRuns()]);
        connectionLost.value = false;
      } catch (error) {
        if (error.status === 0) connectionLost.value = true;
      }
    }
    setTimeout(look, POLL_MILLISECONDS);
  }
  look();
  document.addEventListener("visibilitychange", () => refresh());
  let first = true;
  effect(() => {
    filter.value; // eslint-disable-line no-unused-expressions -- the effect depends on it
    if (!first) {
      wanted = PAGE;
      refresh();
    }
    first = false;
  });
}

export async function change(session, changes) {
  await patch(`sessions/${part(session)}`, changes);
  await load();
}

export function deleteSession(session) {
  const { session_id: id } = session;
  const before = sessions.peek();
  deleted.value = [...deleted.peek(), id];
  sessions.value = before.filter((each) => each.session_id !== id);
  if (route.peek().name === id) go("");
  const keep = () => {
    deleted.value = deleted.peek().filter((each) => each !== id);
    return refresh();
  };
  doUnlessUndone(t.deletedSession(title(session)), {
    run: () => remove(`sessions/${part(id)}`, { keepalive: true }).finally(keep),
    undo: keep,
  });
}

/** Save a session as a file of the browser's. */
export async function download(session, format) {
  const content = await blob(`sessions/${part(session)}/export?format=${format}`);
  const extension = { markdown: "md" }[format] ?? format;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = `${session}.${extension}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
