// The list of sessions, and the way to the other pages.

import { html, memo, useEffect, useRef, useValue } from "../library.js";
import { address, go, route } from "../router.js";
import { importFiles } from "../state/imports.js";
import { confirmations, count as inboxCount } from "../state/inbox.js";
import { attempt } from "../state/notices.js";
import { selection, toggle } from "../state/selection.js";
import {
  activeRuns, change, changeAll, deleteSessions, download, downloadArchive, filter, foundBy, hasMore, isLoaded,
  loadMore, problems, sessions, title,
} from "../state/sessions.js";
import { t } from "../texts.js";
import { askText } from "./dialog.js";
import { remember } from "./found.js";
import { Icon, IconButton } from "./icons.js";
import { Menu } from "./menu.js";
import { dateOf, dropOf } from "./parts.js";
import { sectionOf } from "./sections.js";
import { toggleTheme, theme } from "./theme.js";

async function rename(session) {
  const name = await askText(t.rename, { value: session.title ?? "", label: t.titleOfSession });
  if (name === null) return;
  await attempt(() => change(session.session_id, { title: name.trim() || null }));
}

/** Ask for tags; resolves with them, or null. */
async function askTags(heading, before) {
  const text = await askText(heading, { value: before.join(", "), label: t.tagsWithCommas });
  return text === null ? null : [...new Set(text.split(",").map((tag) => tag.trim()).filter(Boolean))];
}

async function changeTags(session) {
  const tags = await askTags(t.tags, session.tags);
  if (tags !== null) await attempt(() => change(session.session_id, { tags }));
}

function sessionActions(session) {
  const { session_id: id, pinned, archived } = session;
  const set = (changes) => attempt(() => change(id, changes));
  return [
    { label: t.rename, icon: "edit", run: () => rename(session) },
    { label: pinned ? t.unpin : t.pin, icon: "pin", run: () => set({ pinned: !pinned }) },
    { label: t.tags, icon: "tag", run: () => changeTags(session) },
    { label: archived ? t.unarchive : t.archive, icon: "archive", run: () => set({ archived: !archived }) },
    { label: t.exportMarkdown, icon: "export", run: () => attempt(() => download(id, "markdown")) },
    { label: t.exportHtml, icon: "export", run: () => attempt(() => download(id, "html")) },
    { label: t.exportJson, icon: "export", run: () => attempt(() => download(id, "json")) },
    { label: t.delete, icon: "trash", run: () => deleteSessions([session]) },
  ];
}

/** `isSelected` is null while nobody selects. */
const Row = memo(({ session, isSearch, isOpen, isRunning, isWaiting, isSelected }) => {
  const name = title(session);
  const id = session.session_id;
  const date = dateOf(session.updated_at);
  const content = html`<span class="session-title" dir="auto">${name}</span>
      ${isRunning && html`<span class="running ${isWaiting ? "resting" : ""}" role="img"
        aria-label=${isWaiting ? t.callState.asking : t.isAnswering}></span>`}
      ${session.snippet?.length > 0 && html`<span class="snippet" dir="auto">
        ${session.snippet.map(({ text, match }) => (match ? html`<mark>${text}</mark>` : text))}
      </span>`}
      ${((isSearch && session.archived) || session.tags.length > 0) && html`<span class="tags">
        ${isSearch && session.archived && html`<span class="tag">${t.archived}</span>`}
        ${session.tags.map((tag) => html`<span class="tag" dir="auto" key=${tag}>${tag}</span>`)}
      </span>`}`;
  const several = { label: t.selectSeveral, icon: "check", run: () => { selection.value = [id]; } };
  return html`<li class="session ${isOpen ? "open" : ""}" data-row=${id}>
    ${isSelected === null
      ? html`<a href=${address("chat", id)} aria-current=${isOpen ? "page" : null}
          title=${date && t.wholeDate(date)} onClick=${() => remember(session)}>${content}</a>
        <${Menu} label=${t.actionsOf(name)} items=${[...sessionActions(session), several]} />`
      : html`<label><input type="checkbox" checked=${isSelected} onChange=${() => toggle(id)} />${content}</label>`}
  </li>`;
});

/** What can be done with the selected sessions that the list shows. */
function Selection({ ids, shown }) {
  const some = shown.filter(({ session_id: id }) => ids.includes(id));
  const areArchived = some.length > 0 && some.every(({ archived }) => archived);
  const changeEach = (changes) => changeAll(some.map((session) => [session.session_id, changes(session)]));
  const end = () => {
    selection.value = null;
  };
  const run = async (action) => {
    if (await attempt(action)) end();
  };
  const addTags = async () => {
    const added = await askTags(t.addTags, []);
    if (added !== null) await run(() => changeEach(({ tags }) => ({ tags: [...new Set([...tags, ...added])] })));
  };
  const selectAll = () => {
    selection.value = shown.map(({ session_id: id }) => id);
  };
  const actions = [
    ["archive", areArchived ? t.unarchive : t.archive, () => run(() => changeEach(() => ({ archived: !areArchived })))],
    ["tag", t.addTags, addTags],
    ["export", t.exportSelected, () => run(() => downloadArchive(some.map(({ session_id: id }) => id)))],
    ["trash", t.delete, () => run(() => deleteSessions(some))],
  ];
  return html`<div class="selection" role="toolbar" aria-label=${t.selection}>
    <div class="row">
      <strong role="status">${t.selected(some.length)}</strong>
      <button type="button" class="quiet" onClick=${selectAll}>${t.selectAll}</button>
      <${IconButton} icon="close" label=${t.endSelection} onClick=${end} />
    </div>
    <div class="row">
      ${actions.map(([icon, label, action]) => html`<${IconButton} key=${icon} icon=${icon} label=${label}
        disabled=${some.length === 0} onClick=${action} />`)}
    </div>
  </div>`;
}

function groupOf(session, isSearch) {
  if (isSearch) return t.found;
  if (session.pinned) return t.pinned;
  const date = dateOf(session.updated_at);
  if (!date) return t.earlier;
  const days = (Date.now() - date) / 86_400_000;
  if (days < -1) return t.future; // less is another clock
  if (days < 1) return t.lastDay;
  if (days < 7) return t.lastWeek;
  return t.month(date);
}

const ROWS = ".session > a, .session > label > input";

/** Let the arrows go from the search to the sessions, from one to the next, and back. */
function walk(event) {
  if (event.shiftKey || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const places = [document.getElementById("search"), ...document.querySelectorAll(ROWS)];
  const next = places[places.indexOf(event.target) + step];
  if (!step || !places.includes(event.target) || !next) return;
  event.preventDefault();
  next.focus();
}

function List() {
  const all = useValue(sessions);
  const { name, page } = useValue(route);
  const active = useValue(activeRuns);
  const waiting = new Set(useValue(confirmations).map(({ session_id: id }) => id));
  const more = useValue(hasMore);
  const loaded = useValue(isLoaded);
  const unreadable = useValue(problems);
  const { query, archived, tag } = useValue(foundBy);
  const isSearch = query.trim() !== "";
  const selected = useValue(selection);
  const isSelecting = selected !== null;
  useEffect(() => {
    if (!isSelecting) return undefined;
    document.querySelector(".session :checked")?.focus();
    return () => (document.querySelector(".session.open > a") ?? document.querySelector(".session > a"))?.focus();
  }, [isSelecting]);
  const groups = new Map();
  for (const session of all) {
    const group = groupOf(session, isSearch);
    groups.set(group, [...(groups.get(group) ?? []), session]);
  }
  const ordered = [...groups].sort(([a], [b]) => (b === t.pinned) - (a === t.pinned));
  return html`${isSelecting && html`<${Selection} ids=${selected} shown=${all} />`}
  <nav class="sessions" aria-label=${t.sessions} onKeyDown=${walk}>
    ${ordered.map(([group, members]) => html`<section key=${group}>
      <h2>${group}</h2>
      <ul>${members.map((session) => html`<${Row} key=${session.session_id} session=${session}
        isSearch=${isSearch} isOpen=${page === "chat" && name === session.session_id}
        isRunning=${active.has(session.session_id)} isWaiting=${waiting.has(session.session_id)}
        isSelected=${selected?.includes(session.session_id) ?? null} />`)}</ul>
    </section>`)}
    ${loaded && all.length === 0 && html`<p class="hint">${isSearch || archived || tag ? t.nothingFound : t.noSessions}</p>`}
    ${more && html`<button type="button" class="quiet wide" onClick=${loadMore}>${t.showMore}</button>`}
    ${unreadable.length > 0 && html`<p class="hint">${t.unreadable(unreadable.length)}</p>`}
  </nav>`;
}

function Search() {
  const { query, archived, tag } = useValue(filter);
  const timer = useRef(null);
  const onInput = (event) => {
    const words = event.target.value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      filter.value = { ...filter.peek(), query: words };
    }, 200);
  };
  const onKey = (event) => {
    if (event.key === "Escape" && event.target.value) event.stopPropagation(); // it empties the field
  };
  const tags = [...new Set(sessions.peek().flatMap((session) => session.tags))].sort();
  return html`<div class="search">
    <label class="search-box" onKeyDown=${walk}>
      <${Icon} name="search" />
      <input type="search" id="search" onKeyDown=${onKey} placeholder=${t.search} aria-label=${t.search}
        value=${query} onInput=${onInput} autocomplete="off" />
    </label>
    <div class="row">
      <label class="check"><input type="checkbox" checked=${archived}
        onChange=${(event) => { filter.value = { ...filter.peek(), archived: event.target.checked }; }} />
        ${t.archived}</label>
      ${(tags.length > 0 || tag) && html`<select aria-label=${t.onlyTag} value=${tag}
        onChange=${(event) => { filter.value = { ...filter.peek(), tag: event.target.value }; }}>
        <option value="">${t.allTags}</option>
        ${[...new Set([...tags, ...(tag ? [tag] : [])])].map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
      </select>`}
    </div>
  </div>`;
}

export function Sidebar({ isOpen, close }) {
  const { page } = useValue(route);
  const waiting = useValue(inboxCount);
  const current = useValue(theme);
  const element = useRef(null);
  useEffect(() => {
    if (isOpen) element.current.querySelector("a").focus();
  }, [isOpen]);
  const newChat = () => {
    go("");
    close();
  };
  const onKey = (event) => {
    if (event.key !== "Escape") return;
    if (selection.peek()) {
      selection.value = null;
      return;
    }
    if (!isOpen) return;
    close();
    document.querySelector("[aria-controls=sidebar]").focus();
  };
  const importThere = (files) => {
    importFiles(files);
    go("import");
  };
  return html`<aside class="sidebar ${isOpen ? "is-open" : ""}" id="sidebar" aria-label=${t.sidebar}
    ref=${element} onKeyDown=${onKey} ...${dropOf(importThere)}>
    <div class="row">
      <a class="brand" href=${address("")}>mochi</a>
      <${IconButton} icon=${current === "dark" ? "sun" : "moon"} label=${t.theme} onClick=${toggleTheme} />
      <div class="narrow-only"><${IconButton} icon="close" label=${t.close} onClick=${close} /></div>
    </div>
    <button type="button" class="new-chat" onClick=${newChat}><${Icon} name="add" />${t.newChat}</button>
    <${Search} />
    <${List} />
    <nav class="pages" aria-label=${t.pages}>
      <a href=${address("inbox")} aria-current=${page === "inbox" ? "page" : null}>
        <${Icon} name="inbox" /><span>${t.page.inbox}</span>
        ${waiting > 0 && html`<span class="badge" aria-label=${t.waiting(waiting)}>${waiting}</span>`}
      </a>
      <a href=${address("models")} aria-current=${sectionOf(page) ? "true" : null}>
        <${Icon} name="gear" /><span>${t.settings}</span>
      </a>
    </nav>
  </aside>`;
}
