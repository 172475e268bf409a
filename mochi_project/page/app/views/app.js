// The whole page: the sidebar, and what the address says beside it.

import { tokenIsMissing } from "../api.js";
import { html, signal, useEffect, useLayoutEffect, useRef, useState, useValue } from "../library.js";
import { address, go, route } from "../router.js";
import { undoLast } from "../state/notices.js";
import { token } from "../storage.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { NewChatPage, SessionPage } from "./chat-page.js";
import { DialogHost } from "./dialog.js";
import { focusMain, TEXT_FIELDS } from "./focus.js";
import { Notices } from "./notices.js";
import { PageFrame } from "./page-frame.js";
import { Loaded } from "./parts.js";
import { sectionOf, Sections } from "./sections.js";
import { Sidebar } from "./sidebar.js";

/** The pages beside the chats, which come after the first drawing: `{value, loaded, error}`. */
const pages = signal({ value: new Map(), loaded: false, error: null });

async function loadPages() {
  try {
    pages.value = { value: (await import("./pages.js")).PAGES, loaded: true, error: null };
  } catch (error) {
    pages.value = { ...pages.peek(), error };
  }
}

/** Asks for a token above the page: what is written there stays. */
function TokenDialog() {
  const element = useRef(null);
  useLayoutEffect(() => {
    const { current } = element;
    current.showModal();
    return () => current.close(); // it gives the focus back
  }, []);
  const onClose = ({ target }) => target.isConnected && target.showModal();
  const submit = (event) => {
    event.preventDefault();
    const fields = new FormData(event.target);
    const text = fields.get("token").replace(/[^\x20-\xff]/g, ""); // no header takes others, as an invisible one that was copied
    token.write(text.trim(), { onDevice: fields.has("device") });
    tokenIsMissing.value = false;
  };
  return html`<dialog ref=${element} aria-label=${t.token} onClose=${onClose}>
    <form class="token" onSubmit=${submit}>
      <h2>mochi</h2>
      <p>${token.read() ? t.tokenIsWrong : t.tokenIsNeeded}</p>
      <label class="field"><span>${t.token}</span>
        <input type="password" name="token" required autocomplete="off" /></label>
      <label class="check"><input type="checkbox" name="device" />${t.keepToken}</label>
      <button class="primary">${t.open}</button>
    </form></dialog>`;
}

/** Return whether something is written in the field that has the focus, which the browser may undo. */
const hasText = ({ target }) => target.matches(TEXT_FIELDS) && target.value !== "";

function onKey(event) {
  if (document.querySelector("dialog[open]")) return;
  const isCommand = event.ctrlKey || event.metaKey;
  if (isCommand && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    document.getElementById("search")?.focus();
  } else if (isCommand && event.shiftKey && event.key.toLowerCase() === "o") {
    event.preventDefault();
    document.activeElement.blur(); // what is written in a setting is saved
    go("");
    focusMain();
  } else if (isCommand && !event.shiftKey && event.key.toLowerCase() === "z" && !hasText(event)) {
    if (undoLast()) event.preventDefault();
  } else if (event.shiftKey && event.key === "Escape") document.getElementById("message")?.focus();
}

/** Keep the browser from leaving the page for a file that is dropped beside the places that take one. */
function refuse(event) {
  if (event.defaultPrevented || !event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  event.dataTransfer.dropEffect = "none";
}

export function App() {
  const isTokenMissing = useValue(tokenIsMissing);
  const { page, name } = useValue(route);
  const late = useValue(pages);
  const [isSidebarOpen, setSidebarOpen] = useState(false);
  useEffect(() => {
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
  useEffect(() => setSidebarOpen(false), [page, name]);
  useEffect(() => {
    if (!late.loaded) loadPages();
  }, [page]); // where they have not come, another page tries again
  const openSidebar = () => setSidebarOpen(true);
  const Page = late.value.get(page);
  const section = sectionOf(page);
  const lateTitle = page === "tag" ? visible(name) : t.page[page === "inbox" ? page : section];
  let main = html`<${NewChatPage} openSidebar=${openSidebar} />`;
  if (page === "chat") main = html`<${SessionPage} id=${name} openSidebar=${openSidebar} />`;
  else if (Page) main = html`<${Page} name=${name} openSidebar=${openSidebar} key=${address(page, name)} />`;
  else if (lateTitle && !late.loaded) {
    main = html`<${PageFrame} title=${lateTitle} openSidebar=${openSidebar}><${Loaded} state=${late} /></${PageFrame}>`;
  }
  if (section) main = html`<div class="with-sections"><${Sections} current=${section} />${main}</div>`;
  return html`<div class="app" onDragOver=${refuse} onDrop=${refuse}>
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      (document.getElementById("message") ?? document.querySelector("main")).focus();
    }}>${t.skipToMessage}</a>
    <${Sidebar} isOpen=${isSidebarOpen} close=${() => setSidebarOpen(false)} />
    ${isSidebarOpen && html`<div class="veil" onClick=${() => setSidebarOpen(false)}></div>`}
    ${main}
    <${Notices} />
    <${DialogHost} />
    ${isTokenMissing && html`<${TokenDialog} />`}
  </div>`;
}
