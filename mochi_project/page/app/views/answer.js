// The parts of an answer.

import { get, part } from "../api.js";
import { workOf } from "../conversation/history.js";
import { html, memo, useEffect, useRef, useState } from "../library.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { CallCard, Result } from "./call-card.js";
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

/** Return `{work, problem}`: the node with an agent's work, loaded when the card of a stored call is opened. */
function useWork(node, isOpen) {
  const work = useRef(node);
  const [problem, setProblem] = useState(null);
  if (node.children.length > 0) work.current = node;
  const isMissing = isOpen && node.isStored && work.current.children.length === 0;
  useEffect(() => {
    if (!isMissing) return;
    setProblem(null);
    get(`agents/chats/${part(node.session)}`).then(({ messages }) => {
      work.current = workOf(messages, node.instruction);
      setProblem("");
    }, (error) => setProblem(error.message));
  }, [isMissing]);
  return { work: work.current, problem };
}

const Agent = memo(({ node, isLive, sessionId }) => {
  const [isOpen, setOpen] = useState(!node.isStored); // it stays so when the answer is stored: somebody may read it
  const { work, problem } = useWork(node, isOpen);
  return html`<section class="card agent ${node.state}" aria-label=${t.agentNamed(node.agent)}>
    <button type="button" class="card-head" aria-expanded=${`${isOpen}`} onClick=${() => setOpen(!isOpen)}>
      <${Icon} name="agent" />
      <strong class="name"><bdi>${visible(node.agent)}</bdi></strong>
      ${!isOpen && html`<span class="summary" dir="auto">${visible(node.instruction).slice(0, 80)}</span>`}
      ${node.edited && html`<span class="tag">${t.edited}</span>`}
      <span class="state">${t.callState[node.state]}</span>
    </button>
    ${isOpen && html`<div class="card-body">
      <p class="instruction" dir="auto">${visible(node.instruction)}</p>
      <div class="tree">
        <${Nodes} node=${work} version=${work.version} sessionId=${sessionId}
          isLive=${isLive && node.state === "running"} />
      </div>
      ${node.state === "failed" && !problem && html`<p class="error-text" dir="auto">${node.result}</p>`}
      ${problem && html`<p class="error-text" role="alert">${problem}</p>
        <${Result} node=${node} sessionId=${sessionId} />`}
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
        // Another answer may have another agent at this place.
        return html`<${Agent} key=${`${key} ${child.session} ${child.instruction}`} node=${child} version=${version} isLive=${isLive}
          sessionId=${sessionId} />`;
      default:
        return html`<${CallCard} key=${key} node=${child} version=${version} sessionId=${sessionId} />`;
    }
  })}</div>`;
});
