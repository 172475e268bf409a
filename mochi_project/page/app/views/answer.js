// The parts of an answer.

import { html, memo, useState } from "../library.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { CallCard } from "./call-card.js";
import { Icon } from "./icons.js";
import { Markdown } from "./markdown-view.js";

const Thinking = memo(({ text, isLast }) => {
  const [chosen, setOpen] = useState(null);
  const isOpen = chosen ?? false;
  return html`<section class="thinking">
    <button type="button" class="link" aria-expanded=${`${isOpen}`} onClick=${() => setOpen(!isOpen)}>
      ${isLast ? t.isThinking : t.thinking}</button>
    ${isOpen && html`<div class="thinking-text"><${Markdown} text=${text} isComplete=${!isLast} /></div>`}
  </section>`;
});

const Agent = memo(({ node, isLive, sessionId }) => {
  const [chosen, setOpen] = useState(null);
  const isOpen = chosen ?? node.state !== "done";
  return html`<section class="card agent ${node.state}" aria-label=${t.agentNamed(node.agent)}>
    <button type="button" class="card-head" aria-expanded=${`${isOpen}`} onClick=${() => setOpen(!isOpen)}>
      <${Icon} name="agent" />
      <strong class="name"><bdi>${visible(node.agent)}</bdi></strong>
      ${!isOpen && html`<span class="summary" dir="auto">${visible(node.instruction).slice(0, 80)}</span>`}
      <span class="state">${t.callState[node.state]}</span>
    </button>
    ${isOpen && html`<div class="card-body">
      <p class="instruction" dir="auto">${visible(node.instruction)}</p>
      <div class="tree">
        <${Nodes} node=${node} version=${node.version} sessionId=${sessionId}
          isLive=${isLive && node.state === "running"} />
      </div>
      ${node.state === "failed" && html`<p class="error-text" dir="auto">${node.result}</p>`}
    </div>`}
  </section>`;
});

/** The children of an answer or of an agent; `version` says whether they have changed. */
export const Nodes = memo(({ node, isLive, sessionId }) => {
  const last = node.children.length - 1;
  return html`<div class="nodes">${node.children.map((child, index) => {
    const isLast = isLive && index === last;
    const { key, version, kind, text } = child;
    switch (kind) {
      case "text":
        return html`<${Markdown} key=${key} text=${text} isComplete=${!isLast} />`;
      case "thinking":
        return html`<${Thinking} key=${key} text=${text} isLast=${isLast} />`;
      case "rejected":
        return html`<p key=${key} class="hint" dir="auto">${t.wasRejected} ${child.problem}</p>`;
      case "agent":
        return html`<${Agent} key=${key} node=${child} version=${version} isLive=${isLive}
          sessionId=${sessionId} />`;
      default:
        return html`<${CallCard} key=${key} node=${child} version=${version} sessionId=${sessionId} />`;
    }
  })}</div>`;
});
