// The sections of the settings: the pages beside the chats and the inbox.

import { html, useLayoutEffect, useRef } from "../library.js";
import { address } from "../router.js";
import { t } from "../texts.js";
import { Icon } from "./icons.js";

const SECTIONS = [
  ["models", "model"], ["tools", "tool"], ["servers", "server"], ["agents", "agent"], ["prompts", "prompt"],
  ["presets", "gear"], ["rules", "rule"], ["import", "import"], ["health", "health"],
];

/** The section of each page that has one. */
const OF_PAGES = new Map([
  ...SECTIONS.map(([name]) => [name, name]),
  ["new-prompt", "prompts"],
  ["new-preset", "presets"],
]);

export const sectionOf = (page) => OF_PAGES.get(page) ?? null;

export function Sections({ current }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    element.current.querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current]);
  return html`<nav class="sections" aria-label=${t.settings} ref=${element}>
    <strong>${t.settings}</strong>
    ${SECTIONS.map(([name, icon]) => html`<a key=${name} href=${address(name)}
      aria-current=${current === name ? "page" : null}>
      <${Icon} name=${icon} /><span>${t.page[name]}</span>
    </a>`)}
  </nav>`;
}
