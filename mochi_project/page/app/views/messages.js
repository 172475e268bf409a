// Questions and answers, with what can be done with them.

import { html, memo, useEffect, useFocus, useRef, useState, useValue } from "../library.js";
import { copy } from "../markdown/code.js";
import { textOf, waitsForPerson } from "../conversation/nodes.js";
import { canSpeak, readAloud, spoken, stopReading } from "../speech.js";
import { speeds } from "../state/chat.js";
import { attempt } from "../state/notices.js";
import { t } from "../texts.js";
import { Nodes } from "./answer.js";
import { Attachments } from "./attachments.js";
import { IconButton } from "./icons.js";
import { Moment } from "./parts.js";

function QuestionEditor({ chat, message, index, close }) {
  const [text, setText] = useState(message.content);
  const finish = async (action) => {
    if (await attempt(action)) close();
  };
  return html`<form class="editor" onKeyDown=${(event) => event.key === "Escape" && close()} onSubmit=${(event) => {
      event.preventDefault();
      finish(() => chat.edit(index, text));
    }}>
    <textarea dir="auto" rows=${Math.min(text.split("\n").length + 1, 14)} aria-label=${t.editQuestion}
      value=${text} onInput=${(event) => setText(event.target.value)} ref=${useFocus()}></textarea>
    <p class="hint">${t.editReplaces}</p>
    <div class="row wrap">
      <button class="primary" aria-disabled=${!text.trim()}>${t.askAnew}</button>
      <button type="button" aria-disabled=${!text.trim()}
        onClick=${() => finish(() => chat.branchEdited(message, index, text))}>${t.askInBranch}</button>
      <button type="button" class="quiet" onClick=${close}>${t.cancel}</button>
    </div>
  </form>`;
}

export const Question = memo(({ chat, message, index, isBusy }) => {
  const [isEdited, setEdited] = useState(false);
  const article = useRef(null);
  const wasEdited = useRef(false);
  useEffect(() => {
    // The button that began it is there again; while an answer comes it takes nothing.
    if (wasEdited.current && !isEdited) article.current.querySelector("[name=edit][aria-disabled=false]")?.focus();
    wasEdited.current = isEdited;
  }, [isEdited]);
  return html`<article class="question" aria-label=${t.yourMessage} ref=${article}>
    ${isEdited
      ? html`<${QuestionEditor} chat=${chat} message=${message} index=${index} close=${() => setEdited(false)} />`
      : html`<div class="bubble" dir="auto">${message.content}</div>`}
    <${Attachments} list=${message.attachments ?? []} sessionId=${chat.id} />
    ${!isEdited && index !== null && html`<div class="actions">
      <${IconButton} icon="copy" label=${t.copy} onClick=${() => copy(message.content)} />
      <${IconButton} icon="edit" name="edit" label=${t.editQuestion} aria-disabled=${isBusy} onClick=${() => setEdited(true)} />
      <${Moment} at=${message.timestamp} />
    </div>`}
  </article>`;
});

function Variants({ chat, variants, last }) {
  const index = variants.findIndex(({ message_id: id }) => id === last.message_id);
  const show = (step) => attempt(() => chat.selectVariant(variants[index + step].message_id));
  return html`<span class="variants">
    <${IconButton} icon="previous" label=${t.previousVariant} aria-disabled=${index < 1} onClick=${() => show(-1)} />
    <span>${t.variant(index + 1, variants.length)}</span>
    <${IconButton} icon="next" label=${t.nextVariant} aria-disabled=${index === variants.length - 1} onClick=${() => show(1)} />
  </span>`;
}

function figures(message) {
  const parts = [message.model];
  const speed = speeds.get(message.message_id);
  if (message.eval_count) parts.push(t.tokens(message.eval_count));
  if (speed?.seconds && speed.tokens) parts.push(t.tokensPerSecond(speed.tokens / speed.seconds));
  return parts.filter(Boolean).join(" · ");
}

/** Return what is read of a block: all that is seen but the buttons above its code and tables. */
function spokenText(block) {
  const heads = [...block.querySelectorAll(".code-head, .table-head")];
  return heads.reduce((text, head) => text.replace(head.innerText, ""), block.innerText);
}

/** Reads an answer as it is seen, or ends that. */
function ReadButton({ id }) {
  const isRead = useValue(spoken) === id;
  const onClick = ({ target }) => {
    if (isRead) stopReading();
    else readAloud(id, [...target.closest(".answer").querySelectorAll(".markdown .block")].map(spokenText).join("\n"));
  };
  return html`<${IconButton} icon=${isRead ? "stop" : "voice"} label=${isRead ? t.stopReading : t.readAloud} onClick=${onClick} />`;
}

/** That the model works, or that it waits for a person. */
function Working({ answer }) {
  if (waitsForPerson(answer)) {
    return html`<div class="working"><span class="dots resting" aria-hidden="true"><i></i><i></i><i></i></span>
      <span class="hint">${t.callState.asking}</span></div>`;
  }
  return html`<div class="working">
    <span class="dots" role="img" aria-label=${t.isAnswering}><i></i><i></i><i></i></span>
    ${answer.children.length === 0 && html`<span class="hint">${t.waitingForModel}</span>`}
  </div>`;
}

/** An answer: a stored one, whose last message is `last`, or one that is being written. */
export const Answer = memo(({ chat, answer, version, last, dropped, isLast, isBusy, variants }) => {
  const isLive = last === null;
  return html`<article class="answer" aria-label=${t.answerOfModel} aria-busy=${`${isLive}`}>
    ${dropped > 0 && html`<p class="hint">${t.leftOut(dropped)}</p>`}
    <${Nodes} node=${answer} version=${version} isLive=${isLive} sessionId=${chat.id} />
    ${isLive
      ? html`<${Working} answer=${answer} />`
      : html`
        ${last.interrupted && html`<p class="hint">${t.wasInterrupted}</p>`}
        <div class="actions">
          <${IconButton} icon="copy" label=${t.copy} onClick=${() => copy(textOf(answer))} />
          ${canSpeak && last.message_id && html`<${ReadButton} id=${last.message_id} />`}
          ${isLast && html`<${IconButton} icon="retry" label=${t.regenerate} aria-disabled=${isBusy}
            onClick=${() => chat.attemptTurn(() => chat.regenerate(), "answer")} />`}
          ${last.message_id && html`<${IconButton} icon="branch" label=${t.branchOff}
            onClick=${() => attempt(() => chat.branch(last.message_id))} />`}
          ${variants && html`<${Variants} chat=${chat} variants=${variants} last=${last} />`}
          <span class="figures">${figures(last)}${" "}<${Moment} at=${last.timestamp} /></span>
        </div>`}
  </article>`;
});
