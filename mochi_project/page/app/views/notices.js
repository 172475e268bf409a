// The messages at the edge of the page.

import { connectionLost } from "../api.js";
import { html, useValue } from "../library.js";
import { dismiss, notices } from "../state/notices.js";
import { t } from "../texts.js";
import { IconButton } from "./icons.js";

export function Notices() {
  const shown = useValue(notices);
  const isLost = useValue(connectionLost);
  return html`<div class="notices" role="status">
    ${shown.map(({ id, text, kind, action }) => html`<div class="notice ${kind}" key=${id}>
      <span class="notice-text" dir="auto">${text}</span>
      ${action && html`<button type="button" class="link" aria-keyshortcuts="Control+Z" title="Ctrl+Z" onClick=${action.run}>${action.label}</button>`}
      <${IconButton} icon="close" label=${t.close} onClick=${() => dismiss(id)} />
    </div>`)}
    ${isLost && html`<div class="notice error" key="lost">${t.connectionLost}</div>`}
  </div>`;
}
