// Why a turn failed, in the conversation, with what can be done about it.

import { html, useValue } from "../library.js";
import { attemptTurn, failure, regenerate } from "../state/chat.js";
import { t } from "../texts.js";

const OF_MODEL = new Set(
  `MODEL_NOT_FOUND PRESET_NOT_FOUND PRESET_INVALID AGENT_NOT_FOUND TOOLS_NOT_SUPPORTED THINKING_NOT_SUPPORTED
  IMAGES_NOT_SUPPORTED CONTEXT_OVERFLOW PROVIDER_ERROR PROVIDER_UNREACHABLE PROVIDER_BUSY PROVIDER_NOT_CONFIGURED
  OLLAMA_ERROR OLLAMA_UNREACHABLE`.split(/\s+/),
);

function again(kind) {
  // What was refused is in the box again.
  if (kind === "send") document.getElementById("composer").requestSubmit();
  else attemptTurn(regenerate, "answer");
}

/** `withoutTools` changes the settings so that no tool and no agent is offered. */
export function Failure({ withoutTools }) {
  const failed = useValue(failure);
  if (!failed) return null;
  const { error, again: kind } = failed;
  const sendWithoutTools = async () => {
    await withoutTools();
    again(kind);
  };
  return html`<section class="failure" role="alert">
    <p dir="auto">${error.message}</p>
    <div class="row wrap">
      <button type="button" class="primary" onClick=${() => again(kind)}>${t.tryAgain}</button>
      ${error.code === "TOOLS_NOT_SUPPORTED" && html`<button type="button"
        onClick=${sendWithoutTools}>${t.withoutTools}</button>`}
      ${OF_MODEL.has(error.code) && html`<button type="button"
        onClick=${() => document.getElementById("model").click()}>${t.chooseModel}</button>`}
    </div>
  </section>`;
}

/** A question that nothing answers, as after a turn that failed before the page was loaded. */
export function Unanswered() {
  const failed = useValue(failure);
  if (failed) return null;
  return html`<div class="row wrap">
    <span class="hint">${t.isUnanswered}</span>
    <button type="button" onClick=${() => again("answer")}>${t.tryAgain}</button>
  </div>`;
}
