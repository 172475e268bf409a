// A call of a tool: its arguments, the decision of a person, its progress and its result.

import { html, memo, useState } from "../library.js";
import { attempt } from "../state/notices.js";
import { decide } from "../state/inbox.js";
import { t } from "../texts.js";
import { shownArguments, visible } from "../visible.js";
import { Icon } from "./icons.js";
import { Elicitation } from "./elicitation.js";
import { Attachments } from "./attachments.js";

const LONG = 2000; // characters of a result that are shown at first

/** Leave the buttons, which go away, for the message or what else the page is for. */
function moveFocus() {
  const message = window.matchMedia("(pointer: fine)").matches && document.getElementById("message");
  (message || document.querySelector("main .scroller") || document.getElementById("main")).focus();
}

/** The arguments, the buttons that decide, and what a decision may say. */
export function Decision({ confirmation }) {
  const [text, setText] = useState(null);
  const [problem, setProblem] = useState(null);
  const [reason, setReason] = useState(null);
  const [remember, setRemember] = useState("");
  const [isSent, setSent] = useState(false);
  const isEdited = text !== null;
  const shown = confirmation.shown ?? shownArguments(confirmation.arguments);

  const send = async (decision) => {
    setSent(true);
    if (await attempt(() => decide(confirmation.confirmation_id, decision))) moveFocus();
    else setSent(false);
  };
  const approve = () => {
    const decision = { approved: true, ...(remember && { remember }) };
    if (isEdited) {
      try {
        decision.arguments = JSON.parse(text);
      } catch (error) {
        setProblem(t.notJson(error.message));
        return;
      }
    }
    setProblem(null);
    send(decision);
  };
  const deny = (event) => {
    event?.preventDefault();
    send({ approved: false, ...(reason && { reason }) });
  };

  const { queue_position: position, queue_total: total } = confirmation;
  return html`<div class="decision">
    ${confirmation.notice && html`<p class="warning" dir="auto">${confirmation.notice}</p>`}
    ${isEdited
      ? html`<textarea class="code" rows=${Math.min(text.split("\n").length + 1, 16)} dir="ltr"
          aria-label=${t.arguments} spellcheck="false" value=${text}
          onInput=${(event) => setText(event.target.value)}></textarea>`
      : html`<pre class="code" tabindex="0" dir="ltr">${shown}</pre>`}
    ${problem && html`<p class="error-text" role="alert">${problem}</p>`}
    <div class="row wrap">
      <button type="button" class="primary" disabled=${isSent} onClick=${approve}>
        ${isEdited ? t.approveChanged : t.approve}</button>
      <button type="button" disabled=${isSent}
        onClick=${() => (reason === null ? setReason("") : deny())}>${t.deny}</button>
      <button type="button" class="quiet" disabled=${isSent}
        onClick=${() => setText(isEdited ? null : JSON.stringify(confirmation.arguments, null, 2))}>
        ${isEdited ? t.asBefore : t.editArguments}</button>
      <label class="inline-field">${t.remember}
        <select value=${remember} onChange=${(event) => setRemember(event.target.value)}>
          <option value="">${t.rememberNot}</option>
          <option value="session">${t.rememberSession}</option>
          <option value="tool">${t.rememberTool}</option>
        </select>
      </label>
      ${total > 1 && html`<span class="hint">${t.queue(position, total)}</span>`}
    </div>
    ${reason !== null && html`<form class="row wrap" onSubmit=${deny}>
      <input class="grow" dir="auto" placeholder=${t.reasonForModel} aria-label=${t.reasonForModel}
        ref=${(element) => element?.dataset.seen || (element && (element.dataset.seen = "1", element.focus()))}
        value=${reason} onInput=${(event) => setReason(event.target.value)} />
      <button class="danger" disabled=${isSent}>${t.deny}</button>
      <button type="button" class="quiet" onClick=${() => setReason(null)}>${t.cancel}</button>
    </form>`}
  </div>`;
}

/** What a call has returned: the beginning of a long text, and its files. */
export function Result({ node, sessionId }) {
  const [isWhole, setWhole] = useState(false);
  const text = visible(node.result ?? "");
  if (!text && !node.attachments?.length) return null;
  const isLong = text.length > LONG;
  return html`<div class="result">
    ${text && html`<pre class="code ${node.state === "failed" ? "failed" : ""}" tabindex="0" dir="auto">${isLong && !isWhole ? `${text.slice(0, LONG)}…` : text}</pre>`}
    ${isLong && html`<button type="button" class="link" onClick=${() => setWhole(!isWhole)}>
      ${isWhole ? t.showLess : t.showAll(text.length)}</button>`}
    <${Attachments} list=${node.attachments ?? []} sessionId=${sessionId} />
  </div>`;
}

function Progress({ progress }) {
  const { progress: done, total, message } = progress;
  return html`<div class="progress">
    ${total ? html`<progress value=${done} max=${total} aria-label=${t.progress}></progress>` : null}
    <span dir="auto">${message ?? ""}${total ? ` ${Math.round((done / total) * 100)} %` : ""}</span>
  </div>`;
}

/** A short line of the arguments, beside the name of the tool. */
function summary(values) {
  const text = Object.values(values ?? {})
    .map((value) => (typeof value === "string" ? value : JSON.stringify(value)))
    .join(", ");
  return visible(text.length > 80 ? `${text.slice(0, 80)}…` : text).replaceAll("\n", " ");
}

export const CallCard = memo(({ node, sessionId }) => {
  const { state } = node;
  const asks = state === "asking" || node.elicitation;
  const [chosen, setOpen] = useState(null);
  const isOpen = chosen ?? asks;
  return html`<section class="card call ${state}" aria-label=${t.callOf(node.name)}>
    <button type="button" class="card-head" aria-expanded=${`${Boolean(isOpen)}`}
      onClick=${() => setOpen(!isOpen)}>
      <${Icon} name="tool" />
      <code class="name"><bdi>${visible(node.name)}</bdi></code>
      ${!isOpen && html`<span class="summary" dir="auto">${summary(node.arguments)}</span>`}
      ${node.edited && html`<span class="tag">${t.edited}</span>`}
      <span class="state">${t.callState[state]}</span>
    </button>
    ${node.progress && state === "running" && html`<${Progress} progress=${node.progress} />`}
    ${isOpen && html`<div class="card-body">
      ${state === "asking"
        ? html`<p>${t.mayItRun}</p><${Decision} confirmation=${node.confirmation} />`
        : html`<p class="label">${t.arguments}</p>
            <pre class="code" tabindex="0" dir="ltr">${shownArguments(node.arguments)}</pre>`}
      ${node.elicitation && html`<${Elicitation} request=${node.elicitation} />`}
      ${node.decision?.reason && html`<p class="hint" dir="auto">${t.reasonWas} ${node.decision.reason}</p>`}
      ${(state === "done" || state === "failed") && html`<p class="label">${t.result}</p>
        <${Result} node=${node} sessionId=${sessionId} />`}
    </div>`}
  </section>`;
});
