// The list of sessions, as it is now on the server: other tabs and programs change it as well.

import { blob, get, part, patch, post, postForBlob, query, remove } from "../api.js";
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
export const activeRuns = signal(new Map());

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
  const active = runs.filter(({ state }) => ["running", "waiting"].includes(state));
  if (JSON.stringify(active) === JSON.stringify([...activeRuns.peek().values()])) return;
  activeRuns.value = new Map(active.map((run) => [run.session_id, run]));
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

/** Change sessions, one after another; `pairs` are `[id, changes]` each. */
export async function changeAll(pairs) {
  try {
    for (const [id, changes] of pairs) await patch(`sessions/${part(id)}`, changes);
  } finally {
    await load();
  }
}

export const change = (id, changes) => changeAll([[id, changes]]);

/** Make a session with these settings, and return its id. */
export const createSession = async (settings) => (await post("sessions", settings)).session_id;

export function deleteSessions(some) {
  const ids = some.map(({ session_id: id }) => id);
  deleted.value = [...deleted.peek(), ...ids];
  sessions.value = sessions.peek().filter((each) => !ids.includes(each.session_id));
  if (ids.includes(route.peek().name)) go("");
  const keep = () => {
    deleted.value = deleted.peek().filter((each) => !ids.includes(each));
    return refresh();
  };
  doUnlessUndone(t.deletedSessions(some.map(title)), {
    run: async () => {
      const removals = ids.map((id) => remove(`sessions/${part(id)}`));
      const failed = (await Promise.allSettled(removals)).find(({ status }) => status === "rejected");
      keep();
      if (failed) throw failed.reason;
    },
    undo: keep,
  });
}

function save(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Save a session as a file of the browser's. */
export async function download(session, format) {
  const extension = { markdown: "md" }[format] ?? format;
  save(await blob(`sessions/${part(session)}/export?format=${format}`), `${session}.${extension}`);
}

/** Save these sessions, or all, with their attachments as one archive. */
export async function downloadArchive(ids = []) {
  const content = await postForBlob("sessions/export", { session_ids: ids });
  save(content, `mochi ${new Date().toISOString().slice(0, 10)}.zip`);
}
