// What the pages beside the chats have in common.

import { html } from "../library.js";
import { t } from "../texts.js";
import { IconButton } from "./icons.js";

export function PageFrame({ title, openSidebar, actions, children }) {
  return html`<main class="main" id="main" tabindex="-1">
    <header class="page-head">
      <div class="narrow-only"><${IconButton} icon="menu" label=${t.showSidebar} onClick=${openSidebar}
        aria-controls="sidebar" /></div>
      <h1>${title}</h1>
      <span class="grow"></span>
      ${actions}
    </header>
    <div class="scroller" tabindex="0" role="region" aria-label=${title}><div class="page">${children}</div></div>
  </main>`;
}
