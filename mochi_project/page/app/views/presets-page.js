// The presets: models with options, tools, agents and a system prompt.

import { get, part, put, remove } from "../api.js";
import { html, useEffect, useState, useValue } from "../library.js";
import { address, go } from "../router.js";
import { agents, chatWith, models, presets, tools, usualModel } from "../state/catalogue.js";
import { attempt, notify } from "../state/notices.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { confirm } from "./dialog.js";
import { Icon, IconButton } from "./icons.js";
import { PageFrame } from "./page-frame.js";
import { Empty, Loaded, useFresh } from "./parts.js";
import {
  AgentChoices, ModelField, OptionFields, PolicyField, ToolChoices, useChoices,
} from "./setting-fields.js";

const EMPTY = {
  description: "", model: "", options: {}, tools: [], agents: [], policy: "always_confirm", system_prompt: "",
};

async function askToDelete(name) {
  if (!(await confirm(t.deleteThis, visible(name), t.delete))) return;
  await attempt(() => remove(`presets/${part(name)}`));
  await Promise.all([presets.reload(), models.reload()]);
}

function PresetEditor({ name, preset }) {
  const loaded = useChoices(models, tools, agents);
  const { value: known } = useValue(models.state);
  const [values, setValues] = useState({ ...EMPTY, ...preset });
  const [newName, setNewName] = useState("");
  const set = (changes) => setValues((before) => ({ ...before, ...changes }));
  const model = values.model || (name ? "" : usualModel(known.models.filter(({ kind }) => kind === "model")));
  const save = (event) => {
    event.preventDefault();
    if (!loaded) return;
    const { name: _, warnings: __, ...body } = { ...values, model };
    attempt(async () => {
      const saved = await put(`presets/${part(name ?? newName)}`, body);
      (saved.warnings ?? []).forEach((warning) => notify(warning));
      models.reload();
      go("presets");
    });
  };
  return html`<form class="form" onSubmit=${save}>
    ${!name && html`<label class="field"><span>${t.name}</span>
      <input required maxlength="64" pattern="[A-Za-z0-9][A-Za-z0-9._\\-]*" value=${newName}
        onInput=${(event) => setNewName(event.target.value)} autocomplete="off"
        title=${t.charactersOfName} placeholder=${t.charactersOfName} /></label>`}
    <label class="field"><span>${t.description}</span>
      <input maxlength="1024" dir="auto" value=${values.description ?? ""}
        onInput=${(event) => set({ description: event.target.value })} /></label>
    <${Loaded} state=${{ loaded }}>
    <${ModelField} value=${model} onChange=${(chosen) => set({ model: chosen })} />
    <label class="field"><span>${t.systemPrompt}</span>
      <textarea rows="6" dir="auto" value=${values.system_prompt ?? ""}
        onInput=${(event) => set({ system_prompt: event.target.value })}></textarea></label>
    <${ToolChoices} settings=${{ tools: values.tools }} onChange=${({ tools }) => set({ tools })} />
    <${PolicyField} value=${values.policy} onChange=${(policy) => set({ policy })} />
    <${AgentChoices} chosen=${values.agents} onChange=${(agents) => set({ agents })} />
    <${OptionFields} value=${values.options ?? {}} onChange=${(options) => set({ options })} />
    <div class="row end">
      <a class="button" href=${address("presets")}>${t.cancel}</a>
      <button class="primary">${t.save}</button>
    </div>
    </${Loaded}>
  </form>`;
}

function EditPreset({ name, openSidebar }) {
  const [preset, setPreset] = useState(null);
  useEffect(() => {
    get(`presets/${part(name)}`).then(setPreset, (error) => setPreset({ error }));
  }, []);
  return html`<${PageFrame} title=${visible(name)} openSidebar=${openSidebar}>
    ${preset?.error && html`<p class="error-text" role="alert" dir="auto">${visible(preset.error.message)}</p>
      <p class="hint">${t.mendFile}</p>`}
    ${preset && !preset.error && html`<${PresetEditor} name=${name} preset=${preset} />`}
  </${PageFrame}>`;
}

export function NewPresetPage({ openSidebar }) {
  return html`<${PageFrame} title=${t.newPreset} openSidebar=${openSidebar}>
    <${PresetEditor} name=${null} preset=${{}} />
  </${PageFrame}>`;
}

const EXAMPLE = `---
description: Answers in a sentence
model: qwen3:8b
options:
  temperature: 0.2
---

Answer in one sentence.`;

function PresetList({ openSidebar }) {
  const state = useFresh(presets);
  return html`<${PageFrame} title=${t.page.presets} openSidebar=${openSidebar}
    actions=${html`<a class="button" href=${address("new-preset")}>${t.newPreset}</a>`}>
    <p class="hint">${t.aboutPresets}</p>
    <${Loaded} state=${state}>
      ${state.value.presets.length === 0 && html`<${Empty} text=${t.noPresets} example=${EXAMPLE}>
        <a class="button" href=${address("new-preset")}>${t.newPreset}</a></${Empty}>`}
      <ul class="plain">${state.value.presets.map(({ name, description, model, valid, error_message: problem }) => html`
        <li class="card line ${valid ? "" : "failed"}" key=${name}>
          <a class="card-head" href=${address("presets", name)}>
            <${Icon} name="gear" />
            <span class="name" dir="auto">${visible(name)}</span>
            <span class="summary" dir="auto">${visible(problem ?? description ?? "")}</span>
            <span class="state">${valid ? visible(model) : t.cannotBeUsed}</span>
          </a>
          ${valid && html`<button type="button" class="small" aria-label=${t.newChatWith(visible(name))}
            onClick=${() => chatWith(`preset/${name}`)}><${Icon} name="add" />${t.newChat}</button>`}
          <${IconButton} icon="trash" label=${t.deleteNamed(visible(name))} onClick=${() => askToDelete(name)} />
        </li>`)}</ul>
    </${Loaded}>
  </${PageFrame}>`;
}

export function PresetsPage({ name, openSidebar }) {
  return name
    ? html`<${EditPreset} name=${name} openSidebar=${openSidebar} />`
    : html`<${PresetList} openSidebar=${openSidebar} />`;
}
