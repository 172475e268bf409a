// What the pages beside the chats have in common.

import { html } from "../library.js";
import { address } from "../router.js";
import { t } from "../texts.js";
import { Icon, IconButton } from "./icons.js";

/** What is at the top of a narrow window: the way to the list of chats, and a new one. */
export function NarrowButtons({ openSidebar }) {
  return html`<div class="narrow-only">
    <${IconButton} icon="menu" label=${t.showSidebar} onClick=${openSidebar} aria-controls="sidebar" />
    <a class="button icon-button" href=${address("")} aria-label=${t.newChat} title=${t.newChat}><${Icon} name="add" /></a>
  </div>`;
}

export function PageFrame({ title, openSidebar, actions, children }) {
  return html`<main class="main" id="main" tabindex="-1">
    <header class="page-head">
      <${NarrowButtons} openSidebar=${openSidebar} />
      <h1>${title}</h1>
      <span class="grow"></span>
      ${actions}
    </header>
    <div class="scroller" tabindex="0" role="region" aria-label=${title}><div class="page">${children}</div></div>
  </main>`;
}
