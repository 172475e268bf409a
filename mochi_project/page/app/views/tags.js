// The dialog that asks for tags.

import { html, useState, useValue } from "../library.js";
import { tags } from "../state/catalogue.js";
import { t } from "../texts.js";
import { openDialog } from "./dialog.js";

const tagsOf = (text) => [...new Set(text.split(",").map((tag) => tag.trim()).filter(Boolean))];

function TagForm({ before, close }) {
  const { value: { tags: all } } = useValue(tags.state);
  const [text, setText] = useState(before.join(", "));
  const chosen = tagsOf(text);
  const toggle = (tag) => {
    const others = chosen.filter((each) => each !== tag);
    setText((chosen.includes(tag) ? others : [...chosen, tag]).join(", "));
  };
  const submit = (event) => {
    event.preventDefault();
    close(chosen);
  };
  return html`<form onSubmit=${submit}>
    <label class="field">
      <span>${t.tagsWithCommas}</span>
      <input dir="auto" value=${text} onInput=${({ target }) => setText(target.value)} autocomplete="off" />
    </label>
    ${all.length > 0 && html`<div class="places" role="group" aria-label=${t.usedTags}>
      ${all.map(({ tag }) => html`<button type="button" class="tag" key=${tag} aria-pressed=${`${chosen.includes(tag)}`}
        onClick=${() => toggle(tag)}><span dir="auto">${tag}</span></button>`)}
    </div>`}
    <div class="row end">
      <button type="button" onClick=${() => close()}>${t.cancel}</button>
      <button class="primary">${t.save}</button>
    </div>
  </form>`;
}

/** Ask for tags; resolves with them, or null. */
export const askTags = (title, before) => openDialog(title, ({ close }) => html`<${TagForm} before=${before} close=${close} />`);
