// Lists of sessions, as they are now on the server: other tabs and programs change it as well.

import { blob, get, part, patch, pause, post, postForBlob, query, remove } from "../api.js";
import { batch, isUsed, signal } from "../library.js";
import { go, route } from "../router.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { connectionLost, tokenIsMissing } from "../api.js";
import { tags } from "./catalogue.js";
import { attempt, doUnlessUndone } from "./notices.js";

const PAGE = 60;
const POLL_MILLISECONDS = 2000;
const LONGEST_WAIT_FOR_TAGS = 1000; // milliseconds
const LONGEST_LOOK = 30_000; // milliseconds that an answer is waited for: a connection may be dead without an end

/** Ids of sessions that are deleted unless the person undoes it. */
const deleted = signal([]);

/** Ids of sessions that the person has made here, or brought back: these are shown at once. */
export const own = new Set();

/**
 * Whether tags may have changed since they were loaded: they wait while a click may be meant for a chat
 * below them.
 */
let areTagsOld = false;

/** A search finds what is archived as well, and so does a tag. */
function archivedOf({ query: words, archived, tag }) {
  if (archived) return "true";
  return tag || words.trim() ? "all" : "false";
}

/** The sessions that a filter `{query, archived, tag}` selects. */
export class SessionList {
  sessions = signal([]);
  problems = signal([]);
  isLoaded = signal(false);
  hasMore = signal(false);

  #request = new AbortController();
  #newest; // the promise of what is asked for last
  #answered = "";

  constructor(filter) {
    this.filter = signal({ ...filter, limit: PAGE });

    /** The filter by which `sessions` were found; another one may be on its way. */
    this.foundBy = signal(this.filter.peek());
  }

  /** Ask for the sessions, in the place of what was asked for before; who waited for that waits for this. */
  load() {
    this.#request.abort();
    this.#request = new AbortController();
    this.#newest = this.#ask(this.#request.signal);
    return this.#newest;
  }

  async #ask(isReplaced) {
    const asked = this.filter.peek();
    const { loaded, error: noTags } = tags.state.peek();
    const firstTags = loaded || noTags ? null : tags.need();
    const answer = await get(`sessions${query({
      query: asked.query.trim(), archived: archivedOf(asked), tag: asked.tag, limit: asked.limit,
    })}`, { signal: isReplaced }).catch((error) => {
      if (!isReplaced.aborted) throw error;
    });
    if (firstTags) await Promise.race([firstTags, pause(LONGEST_WAIT_FOR_TAGS)]); // later, they move the list below them
    if (isReplaced.aborted) return this.#newest;
    const shown = answer.sessions.filter(({ session_id: id }) => !deleted.peek().includes(id));
    batch(() => {
      if (JSON.stringify(shown) !== JSON.stringify(this.sessions.peek())) this.sessions.value = shown;
      this.foundBy.value = asked;
      this.problems.value = answer.problems;
      this.hasMore.value = answer.next_cursor !== null;
      this.isLoaded.value = true;
    });
    const answered = JSON.stringify(answer.sessions);
    areTagsOld ||= Boolean(noTags) || (!firstTags && answered !== this.#answered);
    this.#answered = answered;
    if (areTagsOld && !isUsed(document.querySelector(".sessions"))) {
      areTagsOld = false;
      tags.reload();
    }
  }

  /** Change the filter. */
  find(changes) {
    this.filter.value = { ...this.filter.peek(), limit: PAGE, ...changes };
    return attempt(() => this.load());
  }

  loadMore() {
    return this.find({ limit: this.filter.peek().limit + PAGE });
  }
}

/** The list at the side. */
export const sideList = new SessionList({ query: "", archived: false });
export const { sessions } = sideList;

/** The lists that are shown. */
export const lists = new Set([sideList]);

const load = () => Promise.all([...lists].map((each) => each.load()));

/** Runs that go on, by the id of their session. */
export const activeRuns = signal(new Map());

export function title(session) {
  return session.title || session.preview || t.newChat;
}

/** Return the title of a session with messages; its first question, which may not be loaded, is with the listed ones. */
export function titleOf({ session_id: id, title: own, messages }, listed) {
  const { preview } = listed.find((each) => each.session_id === id) ?? {};
  return title({ title: own, preview: preview ?? messages.find(({ role }) => role === "user")?.content });
}

async function loadRuns(options) {
  const { runs } = await get("runs", options);
  const active = runs.filter(({ state }) => ["running", "waiting"].includes(state));
  if (JSON.stringify(active) === JSON.stringify([...activeRuns.peek().values()])) return;
  activeRuns.value = new Map(active.map((run) => [run.session_id, run]));
}

export const refresh = () => attempt(load);

/** Look for changes again and again while the page is seen. */
export function watch() {
  async function look() {
    if (document.visibilityState === "visible" && !tokenIsMissing.peek()) {
      const late = new AbortController();
      const isLate = new Promise((_, reject) => { late.signal.onabort = () => reject(late.signal.reason); });
      const timer = setTimeout(() => late.abort({ status: 0 }), LONGEST_LOOK);
      try {
        await Promise.race([isLate, Promise.all([load(), loadRuns({ signal: late.signal })])]);
        connectionLost.value = false;
      } catch (error) {
        if (error.status === 0 && !tokenIsMissing.peek()) connectionLost.value = true;
      }
      clearTimeout(timer);
    }
    setTimeout(look, POLL_MILLISECONDS);
  }
  look();
  document.addEventListener("visibilitychange", () => refresh());
}

/** Change sessions, one after another; `pairs` are `[id, changes]` each. */
export async function changeAll(pairs) {
  try {
    for (const [id, changes] of pairs) await patch(`sessions/${part(id)}`, changes);
  } finally {
    if (pairs.some(([, changes]) => changes.tags)) tags.reload(); // of sessions that no list has, too
    await load();
  }
}

export const change = (id, changes) => changeAll([[id, changes]]);

/** Make a session: one with these settings, or by another path a copy; return its id. */
export async function createSession(settings, path = "sessions") {
  const { session_id: id } = await post(path, settings);
  own.add(id);
  return id;
}

export function deleteSessions(some) {
  const ids = some.map(({ session_id: id }) => id);
  deleted.value = [...deleted.peek(), ...ids];
  for (const { sessions: shown } of lists) shown.value = shown.peek().filter((each) => !ids.includes(each.session_id));
  if (ids.includes(route.peek().name)) go("");
  const keep = () => {
    deleted.value = deleted.peek().filter((each) => !ids.includes(each));
    return refresh();
  };
  const showAgain = () => {
    ids.forEach((id) => own.add(id));
    return keep();
  };
  doUnlessUndone(t.deletedSessions(some.map(title)), {
    run: async () => {
      const removals = ids.map((id) => remove(`sessions/${part(id)}`));
      const failed = (await Promise.allSettled(removals)).find(({ status }) => status === "rejected");
      if (!failed) return keep();
      showAgain();
      throw failed.reason;
    },
    undo: showAgain,
  });
}

function save(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Save a session as a file named after its title; the browser replaces what no file name may have. */
export async function download(session, format) {
  const extension = { markdown: "md" }[format] ?? format;
  const name = visible([...title(session)].slice(0, 60).join(""));
  save(await blob(`sessions/${part(session.session_id)}/export?format=${format}`), `${name}.${extension}`);
}

/** Save these sessions, or all, with their attachments as one archive. */
export async function downloadArchive(ids = []) {
  const content = await postForBlob("sessions/export", { session_ids: ids });
  save(content, `mochi ${new Date().toISOString().slice(0, 10)}.zip`);
}
