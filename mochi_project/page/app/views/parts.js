// What several pages are made of: entries that unfold, facts, problems with file and line.

import { Boundary, html, useEffect, useState, useValue } from "../library.js";
import { copy } from "../markdown/code.js";
import { address } from "../router.js";
import { attempt } from "../state/notices.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { Icon } from "./icons.js";

/** Return the state of a resource, and load it again when the page is opened. */
export function useFresh(resource) {
  useEffect(() => {
    resource.reload();
  }, [resource]);
  return useValue(resource.state);
}

/** Properties of a place to drop files on; what else is dropped there goes its usual way. */
export function dropOf(take) {
  return {
    onDragOver: (event) => event.dataTransfer.types.includes("Files") && event.preventDefault(),
    onDrop: (event) => {
      const { files } = event.dataTransfer;
      if (files.length === 0) return;
      event.preventDefault();
      take(files);
    },
  };
}

/** Return why a provider has no models, with what to do where that is known. */
export function reasonOf({ code, message }) {
  return code === "OLLAMA_UNREACHABLE" ? t.ollamaIsNotRunning : visible(message ?? "");
}

/** A line that says what went wrong. */
export const problemLine = (error) => html`<p class="error-text" role="alert">${error.message}</p>`;

/** A line while something is loaded, or where it cannot be; else its children. Where it cannot be loaded again, they stay above the line. */
export function Loaded({ state, children }) {
  const problem = state.error && problemLine(state.error);
  if (!state.loaded) return problem ?? html`<p class="hint" role="status">${t.loading}</p>`;
  return html`<${Boundary} fallback=${problemLine}>${children}</${Boundary}>${problem}`;
}

/** An entry of a list; `load` is called when it is opened, and `body` gets what it resolves to. */
export function Entry({ icon, name, summary, state, tone = "", load, body }) {
  const [isOpen, setOpen] = useState(false);
  const [content, setContent] = useState(null);
  const toggle = () => {
    setOpen(!isOpen);
    if (!isOpen) attempt(async () => setContent({ value: await load?.() }));
  };
  return html`<li class="card ${tone}">
    <button type="button" class="card-head" aria-expanded=${`${isOpen}`} onClick=${toggle}>
      <${Icon} name=${icon} />
      <span class="name" dir="auto">${visible(name)}</span>
      <span class="summary" dir="auto">${visible(summary ?? "")}</span>
      ${state && html`<span class="state">${state}</span>`}
    </button>
    ${isOpen && html`<div class="card-body">
      ${content ? body(content.value) : html`<p class="hint">${t.loading}</p>`}
    </div>`}
  </li>`;
}

/** A list without entries: what it is for, an example, and what begins one; without that, a button that copies the example. */
export function Empty({ text, example, children }) {
  return html`<div class="empty">
    <p>${text}</p>
    <${Code} label=${t.example} text=${example} />
    <div class="row">${children ?? html`<button type="button" onClick=${() => copy(example)}>${t.copyExample}</button>`}</div>
  </div>`;
}

/** A choice that has nothing to choose yet: where it is said how to add something. */
export function NoneYet({ page }) {
  return html`<p class="hint">${t.noneYet} <a href=${address(page)}>${t.howToAdd}</a></p>`;
}

/** Return the date of a text, or null: a session file that a person has written may have anything there. */
export function dateOf(text) {
  const date = new Date(text ?? NaN); // null would be 1970
  return Number.isNaN(date.getTime()) ? null : date;
}

/** When something was, in short; the whole date is shown as a hint. */
export function Moment({ at }) {
  const date = dateOf(at);
  return date && html`<time class="moment" datetime=${at} title=${t.wholeDate(date)}>${t.shortDate(date)}</time>`;
}

/** Pairs of a label and a value; those whose value is empty are left out. */
export function Facts({ facts }) {
  const shown = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<dl class="facts">${shown.map(([label, value]) => html`<div key=${label}>
    <dt>${label}</dt><dd dir="auto">${typeof value === "string" ? visible(value) : value}</dd></div>`)}
  </dl>`;
}

export function Code({ label, text }) {
  return html`<pre class="code" tabindex="0" dir="ltr" role="group" aria-label=${label}>${visible(text)}</pre>`;
}

/** Problems as the server lists them: `{file, line, reason, severity}` each. */
export function Problems({ problems }) {
  if (problems.length === 0) return null;
  return html`<section class="problems" aria-label=${t.problems}>
    <h2>${t.problems}</h2>
    <ul class="plain">${problems.map(({ file, line, reason, severity }) => html`<li key=${`${file}:${line} ${reason}`}>
      <p class=${severity === "hint" ? "hint" : "warning"} dir="auto">${visible(reason)}</p>
      ${file && html`<code class="place" dir="ltr">${visible(file)}${line ? `:${line}` : ""}</code>`}
    </li>`)}</ul>
  </section>`;
}

/** A button that does something on the server and takes nothing meanwhile. */
export function ActionButton({ run, label, kind = "", small = false, isOff = false }) {
  const [isBusy, setBusy] = useState(false);
  const onClick = async () => {
    setBusy(true);
    await attempt(run);
    setBusy(false);
  };
  return html`<button type="button" class="${kind} ${small ? "small" : ""}" aria-disabled=${isBusy || isOff}
    onClick=${onClick}>${label}</button>`;
}
