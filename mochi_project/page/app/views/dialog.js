// Dialogs, one at a time; the browser keeps the focus in them.

import { tokenIsMissing } from "../api.js";
import { html, signal, useLayoutEffect, useRef, useValue } from "../library.js";
import { t } from "../texts.js";

const shown = signal(null);

/** Show a dialog; `view` gets `close`. Resolves with what `close` is called with, else null: at once while another is shown. */
export function openDialog(title, view) {
  if (shown.peek()) return Promise.resolve(null);
  return new Promise((resolve) => {
    shown.value = { title, view, resolve };
  });
}

export function DialogHost() {
  const dialog = useValue(shown);
  const isTokenMissing = useValue(tokenIsMissing); // it is asked for first
  const element = useRef(null);
  useLayoutEffect(() => {
    if (dialog && !isTokenMissing && !element.current.open) element.current.showModal();
  }, [dialog, isTokenMissing]);
  if (!dialog) return null;
  const close = (value = null) => {
    if (shown.peek() !== dialog) return;
    element.current.close(); // it gives the focus back
    shown.value = null;
    dialog.resolve(value);
  };
  return html`<dialog ref=${element} aria-labelledby="dialog-title" onClose=${({ target }) => target.open || close()}>
    <h2 id="dialog-title">${dialog.title}</h2>
    <${dialog.view} close=${close} />
  </dialog>`;
}

/** Ask for a text; resolves with it, or null. */
export function askText(title, { value = "", placeholder = "", label, multiline = false }) {
  return openDialog(title, ({ close }) => {
    const submit = (event) => {
      event.preventDefault();
      close(new FormData(event.target).get("text"));
    };
    return html`<form onSubmit=${submit}>
      <label class="field">
        <span>${label}</span>
        ${multiline
          ? html`<textarea name="text" rows="8" dir="auto">${value}</textarea>`
          : html`<input name="text" dir="auto" defaultValue=${value} placeholder=${placeholder} autocomplete="off" />`}
      </label>
      <div class="row end">
        <button type="button" onClick=${() => close()}>${t.cancel}</button>
        <button class="primary">${t.save}</button>
      </div>
    </form>`;
  });
}

export function confirm(title, text, action) {
  return openDialog(title, ({ close }) => html`<p dir="auto">${text}</p>
    <div class="row end">
      <button type="button" onClick=${() => close(false)}>${t.cancel}</button>
      <button type="button" class="primary" onClick=${() => close(true)}>${action}</button>
    </div>`);
}

/** Show where a link of a model or a tool leads, before it is followed. */
export function confirmLink(address) {
  let host = "";
  try {
    host = new URL(address).host;
  } catch {
    // An address of mail has none.
  }
  return openDialog(t.openLink, ({ close }) => html`
    ${host && html`<p>${t.linkLeadsTo} <strong><bdi>${host}</bdi></strong></p>`}
    <p class="address" dir="ltr">${address}</p>
    <div class="row end">
      <button type="button" onClick=${() => close()}>${t.cancel}</button>
      <a class="button primary" href=${address} target="_blank" rel="noopener noreferrer"
        onClick=${() => close()}>${t.open}</a>
    </div>`);
}
