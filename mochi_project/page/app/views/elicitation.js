// A question that a tool asks while it runs: a form made of its schema.

import { html, useRef } from "../library.js";
import { decide } from "../state/inbox.js";
import { attempt } from "../state/notices.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { confirmLink } from "./dialog.js";
import { useStillness } from "./stillness.js";

/** The name of a field in the form, whose own properties it must not hide. */
const fieldOf = (name) => `field ${name}`;

function Field({ name, schema, required }) {
  const label = visible(schema.title ?? name);
  const choices = schema.enum ?? schema.oneOf?.map((each) => each.const);
  const hint = schema.description && html`<small dir="auto">${visible(schema.description)}</small>`;
  if (choices) {
    return html`<label class="field"><span>${label}</span>
      <select name=${fieldOf(name)} required=${required}>
        ${!required && html`<option value=""></option>`}
        ${choices.map((each) => html`<option key=${each} value=${each} selected=${each === schema.default}>${visible(`${each}`)}</option>`)}
      </select>${hint}</label>`;
  }
  if (schema.type === "boolean") {
    return html`<label class="check"><input type="checkbox" name=${fieldOf(name)}
      defaultChecked=${schema.default === true} />${label}${hint}</label>`;
  }
  const isNumber = schema.type === "number" || schema.type === "integer";
  return html`<label class="field"><span>${label}</span>
    <input name=${fieldOf(name)} required=${required} type=${isNumber ? "number" : "text"} dir="auto"
      step=${schema.type === "number" ? "any" : null} defaultValue=${schema.default ?? ""} />${hint}</label>`;
}

function answerOf(form, properties) {
  const values = [];
  for (const [name, schema] of Object.entries(properties)) {
    const field = form.elements.namedItem(fieldOf(name));
    if (schema.type === "boolean") values.push([name, field.checked]);
    else if (field.value !== "") {
      const isNumber = schema.type === "number" || schema.type === "integer";
      values.push([name, isNumber ? Number(field.value) : field.value]);
    }
  }
  return Object.fromEntries(values);
}

export function Elicitation({ request, onDecided = () => {} }) {
  const { elicitation, confirmation_id: id } = request;
  const schema = elicitation.requested_schema ?? { properties: {} };
  const properties = schema.properties ?? {};
  const buttons = useRef(null);
  const { isStill, check } = useStillness(buttons);
  const send = async (decision) => {
    if (await attempt(() => decide(id, decision))) onDecided();
  };
  const submit = (event) => {
    event.preventDefault();
    if (check()) send({ approved: true, arguments: answerOf(event.target, properties) });
  };
  const decline = () => check() && send({ approved: false });
  return html`<form class="elicitation" onSubmit=${submit}>
    <p dir="auto">${visible(elicitation.message ?? "")}</p>
    ${elicitation.url && html`<button type="button" class="link" dir="ltr"
      onClick=${() => confirmLink(elicitation.url)}>${visible(elicitation.url)}</button>`}
    ${Object.entries(properties).map(([name, each]) => html`<${Field} key=${name} name=${name}
      schema=${each} required=${(schema.required ?? []).includes(name)} />`)}
    <div class="row buttons ${isStill ? "" : "fresh"}" ref=${buttons}>
      <button class="primary" aria-disabled=${!isStill}>${t.answer}</button>
      <button type="button" aria-disabled=${!isStill} onClick=${decline}>${t.decline}</button>
    </div>
  </form>`;
}
