// A call of a tool: its arguments, the decision of a person, the model that it asks, its progress and its result.

import { memberText } from "../json.js";
import { html, memo, useState } from "../library.js";
import { t } from "../texts.js";
import { shownArguments, visible } from "../visible.js";
import { Attachments } from "./attachments.js";
import { Decision } from "./decision.js";
import { Elicitation } from "./elicitation.js";
import { focusMain } from "./focus.js";
import { Icon } from "./icons.js";

const REASON = /^the user denied this call\. Reason: ([^]*)/;
const LONG = 2000; // characters of a result that are shown at first

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
  const text = Object.entries(values ?? {})
    .map(([name, value]) => (typeof value === "string" ? value : memberText(values, name)))
    .join(", ");
  return visible(text.length > 80 ? `${text.slice(0, 80)}…` : text).replaceAll("\n", " ");
}

/** Which model a tool has asked while it ran. */
function askedModel({ model, eval_count: count }) {
  return [t.askedModel(visible(model)), ...(count === null ? [] : [t.tokens(count)])].join(" · ");
}

/** Why a call was denied: a person's reason, or what the model was told. */
function whyDenied({ decision, result }) {
  const reason = decision?.code ? null : decision?.reason ?? REASON.exec(result)?.[1];
  return visible(reason ? `${t.reasonWas} ${reason}` : result ?? "");
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
      ${node.recovered && html`<span class="tag">${t.writtenAsText}</span>`}
      ${node.edited && html`<span class="tag">${t.edited}</span>`}
      <span class="state">${t.callState[state]}</span>
    </button>
    ${state === "denied" && !isOpen && html`<p class="hint why" dir="auto">${whyDenied(node)}</p>`}
    ${node.sampling && state === "running" && html`<p class="hint why" dir="auto">${askedModel(node.sampling)}</p>`}
    ${node.progress && state === "running" && html`<${Progress} progress=${node.progress} />`}
    ${isOpen && html`<div class="card-body">
      ${state === "asking"
        ? html`<p>${t.mayItRun}</p><${Decision} key=${node.confirmation.confirmation_id} confirmation=${node.confirmation}
            onDecided=${focusMain} />`
        : html`<p class="label">${t.arguments}</p>
            <pre class="code" tabindex="0" dir="ltr">${shownArguments(node.arguments)}</pre>`}
      ${node.elicitation && html`<${Elicitation} request=${node.elicitation} onDecided=${focusMain} />`}
      ${state === "denied" && html`<p class="hint" dir="auto">${whyDenied(node)}</p>`}
      ${(state === "done" || state === "failed") && html`<p class="label">${t.result}</p>
        <${Result} node=${node} sessionId=${sessionId} />`}
    </div>`}
  </section>`;
});
