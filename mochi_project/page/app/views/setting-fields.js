// Fields that settings of chats and presets have in common.

import { html, useState, useValue } from "../library.js";
import { agents, models, tools } from "../state/catalogue.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { Loaded, NoneYet, problemLine, useFresh } from "./parts.js";
import { chosenTools, ToolList, useOnceChosen } from "./tool-list.js";

/** Names of number options, with the step and the limits of their fields. */
const OPTIONS = {
  temperature: { step: 0.1, min: 0 },
  top_p: { step: 0.05, min: 0, max: 1 },
  min_p: { step: 0.05, min: 0, max: 1 },
  top_k: { step: 1, min: 0 },
  max_tokens: { step: 1, min: 1 },
  seed: { step: 1 },
  repeat_penalty: { step: 0.1 },
  presence_penalty: { step: 0.1 },
  frequency_penalty: { step: 0.1 },
};

function changed(values, name, value) {
  const { [name]: _, ...others } = values;
  return value === "" ? others : { ...others, [name]: value };
}

/**
 * Return `[properties, write]` of a field whose text is saved when the field is left; `write(text)` puts a text there and
 * saves it. What is written stays when the page is drawn anew, and, marked, when `save` returns false, or a promise of it.
 */
export function useWritten(value, save) {
  const [written, setWritten] = useState(null);
  const [refused, setRefused] = useState(null);
  const write = async (text) => {
    setWritten(text);
    const isRefused = (await save(text)) === false;
    setRefused(isRefused ? text : null);
    if (!isRefused) setWritten((now) => (now === text ? null : now));
  };
  const properties = {
    value: written ?? value,
    "aria-invalid": refused !== null && refused === written,
    onInput: ({ target }) => setWritten(target.value === `${value}` ? null : target.value),
    onChange: ({ target }) => target.reportValidity() && write(target.value),
  };
  return [properties, write];
}

function NumberField({ name, limits, value, save }) {
  const [written] = useWritten(value ?? "", (text) => save(text === "" ? "" : Number(text)));
  return html`<label class="field"><span>${t.option[name]}</span>
    <input type="number" placeholder=${t.usual} ...${limits} step=${Number.isInteger(limits.step) ? 1 : "any"}
      ...${written} /></label>`;
}

function StopField({ value, save }) {
  const [written] = useWritten([value ?? []].flat().join("\n"), (text) => {
    const lines = text.split("\n").filter(Boolean);
    return save(lines.length === 0 ? "" : lines);
  });
  return html`<label class="field whole"><span>${t.stopAt}</span>
    <textarea rows="2" ...${written}></textarea></label>`;
}

/** Options of a model: numbers by name, and texts that end a reply; other options stay. */
export function OptionFields({ value, onChange }) {
  const save = (name) => (entered) => onChange(changed(value, name, entered));
  return html`<fieldset class="options"><legend>${t.options}</legend>
    ${Object.entries(OPTIONS).map(([name, limits]) => html`<${NumberField} key=${name} name=${name} limits=${limits}
      value=${value[name]} save=${save(name)} />`)}
    <${StopField} value=${value.stop} save=${save("stop")} />
  </fieldset>`;
}

/**
 * Load what fields choose from, and return whether all of it has been loaded: what comes late moves what
 * is below it.
 */
export function useChoices(...resources) {
  return resources.map((each) => useFresh(each)).every(({ loaded, error }) => loaded || error);
}

/** Choose some of the names; those that are chosen and do not exist are shown as well. */
function NameChoices({ legend, entries, chosen, onChange }) {
  const [words, setWords] = useState("");
  const isMissing = (name) => !entries.some((entry) => entry.name === name);
  const missing = useOnceChosen(chosen).filter(isMissing);
  const all = [...missing.map((name) => ({ name, description: t.doesNotExist })), ...entries];
  const shown = all.filter(({ name }) => name.toLowerCase().includes(words.toLowerCase()));
  const set = (name, isOn) => onChange(isOn ? [...chosen, name] : chosen.filter((each) => each !== name));
  return html`<fieldset><legend>${legend} ${chosen.length > 0 ? `(${chosen.length})` : ""}</legend>
    ${all.length > 8 && html`<input type="search" aria-label=${t.searchIn(legend)} placeholder=${t.search}
      value=${words} onInput=${(event) => setWords(event.target.value)} />`}
    ${all.length === 0 && html`<${NoneYet} page="agents" />`}
    <div class="choices" tabindex="0" role="group" aria-label=${legend}>${shown.map(({ name, description }) => html`<label class="check" key=${name}
      title=${visible(description ?? "")}>
      <input type="checkbox" checked=${chosen.includes(name)} onChange=${(event) => set(name, event.target.checked)} />
      <span dir="auto">${visible(name)}</span></label>`)}</div>
  </fieldset>`;
}

/** `settings` are those of tools; `onChange(changes)` gets what a choice changes of them. */
export function ToolChoices({ settings, onChange }) {
  const { value } = useValue(tools.state);
  const { length } = chosenTools(settings, value);
  return html`<fieldset><legend>${t.page.tools} ${length > 0 ? `(${length})` : ""}</legend>
    <${ToolList} settings=${settings} onChange=${onChange} /></fieldset>`;
}

export function AgentChoices({ chosen, onChange }) {
  const state = useValue(agents.state);
  return html`<${Loaded} state=${state}>
    <${NameChoices} legend=${t.page.agents} chosen=${chosen} onChange=${onChange}
      entries=${Object.values(state.value.agents).filter(({ valid }) => valid)} /></${Loaded}>`;
}

export function PolicyField({ value, onChange }) {
  return html`<label class="field"><span>${t.isAsked}</span>
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${Object.entries(t.policies).map(([policy, text]) => html`<option key=${policy} value=${policy}>${text}</option>`)}
    </select></label>`;
}

/** A model of a provider. */
export function ModelField({ value, onChange }) {
  const { value: answer, error } = useValue(models.state);
  const names = answer.models.filter(({ kind }) => kind === "model").map(({ name }) => name);
  const all = value && !names.includes(value) ? [value, ...names] : names;
  return html`<label class="field"><span>${t.model}</span>
    <select required value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${!value && html`<option value=""></option>`}
      ${all.map((name) => html`<option key=${name} value=${name}>${visible(name)}</option>`)}
    </select>${error && problemLine(error)}</label>`;
}
