// The list of sessions, and the way to the other pages.

import { html, memo, useEffect, useRef, useState, useValue } from "../library.js";
import { address, go, route } from "../router.js";
import { tags } from "../state/catalogue.js";
import { importFiles } from "../state/imports.js";
import { confirmations, count as inboxCount } from "../state/inbox.js";
import { attempt } from "../state/notices.js";
import { selection, toggle } from "../state/selection.js";
import {
  activeRuns, change, changeAll, deleteSessions, download, downloadArchive, sessions, sideList, title,
} from "../state/sessions.js";
import { t } from "../texts.js";
import { askText } from "./dialog.js";
import { marked, markedTitle, remember } from "./found.js";
import { Icon, IconButton } from "./icons.js";
import { Menu } from "./menu.js";
import { dateOf, dropOf, Moment } from "./parts.js";
import { sectionOf } from "./sections.js";
import { useSteady } from "./steady.js";
import { askTags } from "./tags.js";
import { toggleTheme, theme } from "./theme.js";

async function rename(session, set) {
  const texts = { value: session.title ?? "", placeholder: title(session), label: t.titleOfSession };
  const name = await askText(t.rename, texts);
  if (name === null) return;
  await set({ title: name.trim() || null });
}

async function changeTags(session, set) {
  const tags = await askTags(t.tags, session.tags);
  if (tags !== null) await set({ tags });
}

/** `set(changes)` keeps changes of the session. */
export function sessionActions(session, set = (changes) => attempt(() => change(session.session_id, changes))) {
  const { pinned, archived } = session;
  return [
    { label: t.rename, icon: "edit", run: () => rename(session, set) },
    { label: pinned ? t.unpin : t.pin, icon: "pin", run: () => set({ pinned: !pinned }) },
    { label: t.tags, icon: "tag", run: () => changeTags(session, set) },
    { label: archived ? t.unarchive : t.archive, icon: "archive", run: () => set({ archived: !archived }) },
    { label: t.exportMarkdown, icon: "export", run: () => attempt(() => download(session, "markdown")) },
    { label: t.exportHtml, icon: "export", run: () => attempt(() => download(session, "html")) },
    { label: t.exportJson, icon: "export", run: () => attempt(() => download(session, "json")) },
    { label: t.delete, icon: "trash", run: () => deleteSessions([session]) },
  ];
}

/** `isSelected` is null while nobody selects. */
const Row = memo(({ session, isSearch, isOpen, isRunning, isWaiting, isSelected }) => {
  const name = title(session);
  const id = session.session_id;
  const date = dateOf(session.updated_at);
  const content = html`<span class="session-title" dir="auto">${markedTitle(session)}</span>
      ${isRunning && html`<span class="running ${isWaiting ? "resting" : ""}" role="img"
        aria-label=${isWaiting ? t.callState.asking : t.isAnswering}></span>`}
      ${session.snippet?.length > 0 && session.found_in !== "title" && html`<span class="snippet" dir="auto">${marked(session.snippet)}</span>`}
      ${(isSearch || session.tags.length > 0) && html`<span class="tags">
        ${isSearch && html`<${Moment} at=${session.updated_at} />`}
        ${isSearch && session.archived && html`<span class="tag">${t.archived}</span>`}
        ${session.tags.map((tag) => html`<span class="tag" dir="auto" key=${tag}>${tag}</span>`)}
      </span>`}`;
  const several = { label: t.selectSeveral, icon: "check", run: () => { selection.value = [id]; } };
  const actions = sessionActions(session);
  const items = [...actions.slice(0, -1), several, actions.at(-1)];
  return html`<li class="session ${isOpen ? "open" : ""}" data-row=${id}>
    ${isSelected === null
      ? html`<a href=${address("chat", id)} aria-current=${isOpen ? "page" : null}
          title=${date && t.wholeDate(date)} onClick=${() => remember(session)}>${content}</a>
        <${Menu} label=${t.actionsOf(name)} items=${items} />`
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
        aria-disabled=${some.length === 0} onClick=${action} />`)}
    </div>
  </div>`;
}

function groupOf(session) {
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
  const more = useValue(sideList.hasMore);
  const loaded = useValue(sideList.isLoaded);
  const unreadable = useValue(sideList.problems);
  const foundBy = useValue(sideList.foundBy);
  const isSearch = foundBy.query.trim() !== "";
  const selected = useValue(selection);
  const isSelecting = selected !== null;
  useEffect(() => {
    if (!isSelecting) return undefined;
    document.querySelector(".session :checked")?.focus();
    return () => (document.querySelector(".session.open > a") ?? document.querySelector(".session > a"))?.focus();
  }, [isSelecting]);
  const { placed, ref } = useSteady({
    sessions: all, foundBy, groupOf: isSearch ? () => t.found : groupOf, isHeld: isSelecting,
  });
  const groups = new Map();
  for (const [session, group] of placed) groups.set(group, [...(groups.get(group) ?? []), session]);
  const ordered = [...groups].sort(([a], [b]) => (b === t.pinned) - (a === t.pinned));
  const shown = placed.map(([session]) => session);
  return html`${isSelecting && html`<${Selection} ids=${selected} shown=${shown} />`}
  <nav class="sessions" aria-label=${t.sessions} onKeyDown=${walk} ref=${ref}>
    ${ordered.map(([group, members]) => html`<section key=${group}>
      <h2>${group}</h2>
      <ul>${members.map((session) => html`<${Row} key=${session.session_id} session=${session}
        isSearch=${isSearch} isOpen=${page === "chat" && name === session.session_id}
        isRunning=${active.has(session.session_id)} isWaiting=${waiting.has(session.session_id)}
        isSelected=${selected?.includes(session.session_id) ?? null} />`)}</ul>
    </section>`)}
    ${loaded && all.length === 0 && html`<p class="hint">${isSearch || foundBy.archived ? t.nothingFound : t.noSessions}</p>`}
    ${more && html`<button type="button" class="quiet wide" onClick=${() => sideList.loadMore()}>${t.showMore}</button>`}
    ${unreadable.length > 0 && html`<p class="hint">${t.unreadable(unreadable.length)}</p>`}
  </nav>`;
}

/** A field that searches in a list of sessions. */
export function SearchBox({ list, label, ...rest }) {
  return html`<label class="search-box">
    <${Icon} name="search" />
    <input type="search" placeholder=${t.search} aria-label=${label} defaultValue=${list.filter.peek().query}
      onInput=${(event) => list.find({ query: event.target.value })} autocomplete="off" ...${rest} />
  </label>`;
}

function Search() {
  const { archived } = useValue(sideList.filter);
  const onKey = (event) => {
    if (event.key === "Escape" && event.target.value) event.stopPropagation(); // it empties the field
    walk(event);
  };
  return html`<div class="search">
    <${SearchBox} list=${sideList} label=${t.search} id="search" onKeyDown=${onKey} />
    <label class="check"><input type="checkbox" checked=${archived}
      onChange=${(event) => sideList.find({ archived: event.target.checked })} />${t.onlyArchived}</label>
  </div>`;
}

const FEW = 8; // tags

/** The tags of all chats, each of which is a place. */
function Tags() {
  const { value: { tags: all } } = useValue(tags.state);
  const { page, name } = useValue(route);
  const [isWhole, setWhole] = useState(false);
  if (all.length === 0) return null;
  return html`<nav class="places" aria-label=${t.tags}>
    ${(isWhole ? all : all.slice(0, FEW)).map(({ tag, session_count: count }) => html`<a class="tag" key=${tag}
      href=${address("tag", tag)} aria-current=${page === "tag" && name === tag ? "page" : null}
      ><span dir="auto">${tag}</span>${" "}<small>${count}</small></a>`)}
    ${all.length > FEW && html`<button type="button" class="quiet small" aria-expanded=${`${isWhole}`}
      onClick=${() => setWhole(!isWhole)}>${isWhole ? t.showLess : t.showMore}</button>`}
  </nav>`;
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
    <${Tags} />
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
