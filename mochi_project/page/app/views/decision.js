// The decision about a call: its arguments, the buttons, and what a decision may say.

import { parse, stringify } from "../json.js";
import { html, useEffect, useFocus, useLayoutEffect, useRef, useState } from "../library.js";
import { attempt } from "../state/notices.js";
import { decide } from "../state/inbox.js";
import { t } from "../texts.js";
import { shownArguments, visible } from "../visible.js";
import { settle } from "./end.js";
import { useStillness } from "./stillness.js";

/** Which calls an approval allows from now on; `name` is that of no other choice on the page. */
function Suggestions({ name, suggestions, chosen, onChoose }) {
  const element = useRef(null);
  useLayoutEffect(() => element.current.scrollIntoView({ block: "nearest" }), []);
  return html`<fieldset ref=${element}>
    <legend>${t.allowedFromNowOn}</legend>
    ${suggestions.map(({ allows }, index) => html`<label class="check" key=${index}>
      <input type="radio" name=${name} checked=${index === chosen} onChange=${() => onChoose(index)} />
      <span class="allows" dir="auto">${visible(allows)}</span>
    </label>`)}
  </fieldset>`;
}

/** What is asked about. Of a long text it says how much is below, beside a button that shows all. */
function Shown({ text }) {
  const element = useRef(null);
  const [below, setBelow] = useState(null); // lines; null: all fits
  const [isWhole, setWhole] = useState(false);
  const measure = () => {
    const { scrollHeight, scrollTop, clientHeight } = element.current;
    const height = parseFloat(getComputedStyle(element.current).lineHeight);
    const isLong = scrollHeight > clientHeight + 1;
    setBelow(isLong ? Math.max(0, Math.round((scrollHeight - scrollTop - clientHeight) / height)) : null);
  };
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [text, isWhole]);
  return html`<div class="shown">
    <pre class="code ${isWhole ? "whole" : ""}" tabindex="0" dir="ltr" ref=${element} onScroll=${measure}>${text}</pre>
    ${(below !== null || isWhole) && html`<p class="row below">
      ${below > 0 && html`<strong class="warning">${t.linesBelow(below)}</strong>`}
      <button type="button" class="link" onClick=${() => setWhole(!isWhole)}>
        ${isWhole ? t.showLess : t.showWhole}</button>
    </p>`}
  </div>`;
}

function ArgumentsField({ value, onInput, close }) {
  return html`<textarea class="code" rows=${Math.min(value.split("\n").length + 1, 16)} dir="ltr"
    ref=${useFocus()} aria-label=${t.arguments} spellcheck="false" value=${value} onInput=${onInput}
    onKeyDown=${(event) => event.key === "Escape" && close()}></textarea>`;
}

function ReasonForm({ value, onInput, deny, isOff, close }) {
  return html`<form class="row wrap" onSubmit=${deny}
      onKeyDown=${(event) => event.key === "Escape" && close()}>
    <input dir="auto" placeholder=${t.reasonForModel} aria-label=${t.reasonForModel}
      ref=${useFocus()} value=${value} onInput=${onInput} />
    <button class="danger" aria-disabled=${isOff}>${t.deny}</button>
    <button type="button" class="quiet" onClick=${close}>${t.cancel}</button>
  </form>`;
}

/** Buttons take nothing before a person can have seen what they are for; `onDecided()` is called when they go away. */
export function Decision({ confirmation, onDecided = () => {} }) {
  const [text, setText] = useState(null);
  const [problem, setProblem] = useState(null);
  const [reason, setReason] = useState(null);
  const [remember, setRemember] = useState("");
  const [chosen, setChosen] = useState(0);
  const [isSent, setSent] = useState(false);
  const buttons = useRef(null);
  const { isStill, check, willMove } = useStillness(buttons);
  useLayoutEffect(settle); // what a button has opened above it does not move it
  const isEdited = text !== null;
  const suggestions = isEdited ? [] : confirmation.suggestions ?? []; // they are of what was asked
  const rule = suggestions.length > 0 && remember !== ""
    ? { remember, patterns: suggestions[chosen].patterns }
    : null;
  const shown = confirmation.shown ?? shownArguments(confirmation.arguments);

  const send = async (decision) => {
    setSent(true);
    if (await attempt(() => decide(confirmation.confirmation_id, decision))) onDecided();
    else setSent(false);
  };
  const approve = () => {
    if (!check()) return;
    const decision = { approved: true, ...rule };
    if (isEdited) {
      try {
        decision.arguments = parse(text);
      } catch (error) {
        setProblem(t.notJson(error.message));
        return;
      }
    }
    setProblem(null);
    send(decision);
  };
  const deny = (event) => {
    event.preventDefault();
    if (check()) send({ approved: false, ...(reason && { reason }) });
  };
  const startDenying = (event) => {
    if (!check()) return;
    willMove();
    if (reason === null) setReason("");
    else deny(event);
  };
  const focus = (name) => buttons.current.querySelector(`[name=${name}]`).focus();
  const startEditing = () => {
    willMove();
    setText(stringify(confirmation.arguments, 2));
  };
  const stopEditing = () => {
    willMove();
    setText(null);
    setProblem(null);
    focus("edit");
  };
  const stopDenying = () => {
    willMove();
    setReason(null);
    focus("deny");
  };

  const { queue_position: position, queue_total: total } = confirmation;
  return html`<div class="decision">
    ${confirmation.notice && html`<p class="warning" dir="auto">${confirmation.notice}</p>`}
    ${isEdited
      ? html`<${ArgumentsField} value=${text} onInput=${(event) => setText(event.target.value)}
          close=${stopEditing} />`
      : html`<${Shown} text=${shown} />`}
    ${problem && html`<p class="error-text" role="alert">${problem}</p>`}
    <div class="row wrap buttons ${isStill ? "" : "fresh"}" ref=${buttons}>
      <button type="button" class="primary" aria-disabled=${isSent || !isStill}
        onClick=${approve}>${isEdited ? t.approveChanged : t.approve}</button>
      <button type="button" name="deny" aria-disabled=${isSent || !isStill}
        onClick=${startDenying}>${t.deny}</button>
      <button type="button" name="edit" class="quiet" aria-disabled=${isSent}
        onClick=${isEdited ? stopEditing : startEditing}>
        ${isEdited ? t.asBefore : t.editArguments}</button>
      ${suggestions.length > 0 && html`<label class="inline-field">${t.remember}
        <select value=${remember} onChange=${(event) => { willMove(); setRemember(event.target.value); }}>
          <option value="">${t.rememberNot}</option>
          ${confirmation.session_kept !== false && html`<option value="session">${t.rememberSession}</option>`}
          <option value="tool">${t.rememberTool}</option>
        </select>
      </label>`}
      ${total > 1 && html`<span class="hint">${t.queue(position, total)}</span>`}
    </div>
    ${rule && html`<${Suggestions} name=${confirmation.confirmation_id} suggestions=${suggestions}
      chosen=${chosen} onChoose=${setChosen} />`}
    ${reason !== null && html`<${ReasonForm} value=${reason} deny=${deny} isOff=${isSent || !isStill}
      onInput=${(event) => setReason(event.target.value)} close=${stopDenying} />`}
  </div>`;
}
