// The settings of a chat.

import { html } from "../library.js";
import { t } from "../texts.js";
import { IconButton } from "./icons.js";

export function SettingsPanel({ close }) {
  return html`<aside class="settings" aria-label=${t.chatSettings}>
    <div class="row"><h2 class="grow">${t.chatSettings}</h2>
      <${IconButton} icon="close" label=${t.close} onClick=${close} /></div>
  </aside>`;
}
