// A tag as a place: its chats, the archived ones too, and a search in them.

import { html, useEffect, useState, useValue } from "../library.js";
import { address } from "../router.js";
import { attempt } from "../state/notices.js";
import { lists, SessionList, title } from "../state/sessions.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { marked, markedTitle, remember } from "./found.js";
import { Menu } from "./menu.js";
import { PageFrame } from "./page-frame.js";
import { Moment } from "./parts.js";
import { SearchBox, sessionActions } from "./sidebar.js";
import { useSteady } from "./steady.js";

function Row({ session }) {
  const { session_id: id, title: own, preview, snippet, found_in: place, archived } = session;
  const name = title(session);
  return html`<li class="card line" data-row=${id}>
    <a class="card-head" href=${address("chat", id)} onClick=${() => remember(session)}>
      <span class="name" dir="auto">${markedTitle(session)}</span>
      <span class="summary" dir="auto">${snippet?.length > 0 && place !== "title" ? marked(snippet) : own && preview}</span>
      ${archived && html`<span class="tag">${t.archived}</span>`}
      <${Moment} at=${session.updated_at} />
    </a>
    <${Menu} label=${t.actionsOf(name)} items=${sessionActions(session)} />
  </li>`;
}

export function TagPage({ name, openSidebar }) {
  const [list] = useState(() => new SessionList({ query: "", archived: false, tag: name }));
  const all = useValue(list.sessions);
  const isLoaded = useValue(list.isLoaded);
  const hasMore = useValue(list.hasMore);
  useEffect(() => {
    lists.add(list);
    attempt(() => list.load());
    return () => lists.delete(list);
  }, []);
  const { placed, ref } = useSteady({ sessions: all, foundBy: useValue(list.foundBy) });
  const shown = visible(name);
  return html`<${PageFrame} title=${shown} openSidebar=${openSidebar}>
    <${SearchBox} list=${list} label=${t.searchIn(shown)} />
    ${!isLoaded && html`<p class="hint" role="status">${t.loading}</p>`}
    ${isLoaded && all.length === 0 && html`<p class="hint">${t.nothingFound}</p>`}
    <ul class="plain" ref=${ref}>${placed.map(([session]) => html`<${Row} key=${session.session_id} session=${session} />`)}</ul>
    ${hasMore && html`<button type="button" class="quiet wide" onClick=${() => list.loadMore()}>${t.showMore}</button>`}
  </${PageFrame}>`;
}
