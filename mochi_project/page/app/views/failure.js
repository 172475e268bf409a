// Why a turn failed, in the conversation, with what can be done about it.

import { html, useValue } from "../library.js";
import { address } from "../router.js";
import { isMissing, models } from "../state/catalogue.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { askModel } from "./model-picker.js";

const OF_MODEL = new Set(
  `PRESET_NOT_FOUND PRESET_INVALID AGENT_NOT_FOUND TOOLS_NOT_SUPPORTED THINKING_NOT_SUPPORTED
  IMAGES_NOT_SUPPORTED CONTEXT_OVERFLOW PROVIDER_ERROR PROVIDER_UNREACHABLE PROVIDER_BUSY PROVIDER_NOT_CONFIGURED
  OLLAMA_ERROR OLLAMA_UNREACHABLE`.split(/\s+/),
);

function again(chat, kind) {
  // What was refused is in the box again.
  if (kind !== "send") chat.attemptTurn(() => chat.regenerate(), "answer");
  else if (chat.isOpen) document.getElementById("composer")?.requestSubmit();
}

/** That the model of the chat is not here, and the choice of one that answers; `kind` is null where nothing waits. */
function AnswerWith({ chat, model, kind, withModel }) {
  const { models: list } = useValue(models.state).value;
  const onClick = async () => {
    const name = await askModel();
    if (!name || !(await withModel(name))) return;
    if (kind) again(chat, kind);
    else document.getElementById("message").focus();
  };
  return html`<section class="row wrap" role="status">
    <span class="hint" dir="auto">${t.modelIsNotHere(visible(model))}</span>
    ${list.length > 0
      ? html`<button type="button" class="primary" onClick=${onClick}>${t.answerWith}</button>`
      : html`<a class="button primary" href=${address("models")}>${t.chooseModel}</a>`}
  </section>`;
}

/**
 * What stands where an answer would come.
 *
 * `isUnanswered` is true after a question without an answer, as after a turn that failed before the page was loaded.
 * `withModel(name)` chooses another model, and `withoutTools()` changes the settings so that no tool and no agent is
 * offered; both resolve to whether that went well.
 */
export function Failure({ chat, model, isUnanswered = false, withModel, withoutTools }) {
  const failed = useValue(chat.failure);
  useValue(models.state);
  if (isMissing(model) || failed?.error.code === "MODEL_NOT_FOUND") {
    const kind = failed?.again ?? (isUnanswered ? "answer" : null);
    return html`<${AnswerWith} chat=${chat} model=${model} kind=${kind} withModel=${withModel} />`;
  }
  if (!failed) {
    return isUnanswered && html`<div class="row wrap">
      <span class="hint">${t.isUnanswered}</span>
      <button type="button" onClick=${() => again(chat, "answer")}>${t.tryAgain}</button>
    </div>`;
  }
  const { error, again: kind } = failed;
  const sendWithoutTools = async () => {
    if (await withoutTools()) again(chat, kind);
  };
  return html`<section class="failure" role="alert">
    <p dir="auto">${error.message}</p>
    <div class="row wrap">
      <button type="button" class="primary" onClick=${() => again(chat, kind)}>${t.tryAgain}</button>
      ${error.code === "TOOLS_NOT_SUPPORTED" && html`<button type="button"
        onClick=${sendWithoutTools}>${t.withoutTools}</button>`}
      ${OF_MODEL.has(error.code) && html`<button type="button"
        onClick=${() => document.getElementById("model").click()}>${t.chooseModel}</button>`}
    </div>
  </section>`;
}
