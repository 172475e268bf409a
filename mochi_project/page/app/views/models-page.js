// The models of all providers.

import { html } from "../library.js";
import { post } from "../api.js";
import { chatWith, inMemory, models } from "../state/catalogue.js";
import { t } from "../texts.js";
import { PageFrame } from "./page-frame.js";
import { ActionButton, Entry, Facts, Loaded, reasonOf, useFresh } from "./parts.js";
import { Pulls } from "./pulls.js";

/** Load a model into memory, or unload it, where its provider does so. */
function keepInMemory(name, isKept) {
  return post("../../ollama/api/generate", { model: name, ...(isKept ? {} : { keep_alive: 0 }) });
}

/** Providers whose models are in the memory of this machine, or of one of the person's. */
const LOADED_BY_US = new Set(["local", "ollama"]);

function Model({ model, isInMemory, onMemory }) {
  const { name, description, capabilities } = model;
  const facts = [
    [t.description, description],
    [t.standsFor, model.parent_model],
    [t.capabilities, capabilities.join(", ")],
    [t.contextWindow, model.context_length && t.tokens(model.context_length)],
    [t.parameters, model.parameter_size],
    [t.size, model.size_mb && t.megabytes(model.size_mb)],
    [t.format, [model.format, model.quantization_level].filter(Boolean).join(" · ")],
    [t.family, model.family],
    [t.sentTo, model.remote_host],
  ];
  return html`<${Entry} icon=${model.kind === "agent" ? "agent" : "model"} name=${name}
    summary=${description || [model.parameter_size, ...capabilities].filter(Boolean).join(" · ")}
    state=${isInMemory ? t.isInMemory : null} tone=${isInMemory ? "done" : ""}
    body=${() => html`<${Facts} facts=${facts} />
      <div class="row"><button type="button" class="primary" onClick=${() => chatWith(name)}>${t.newChat}</button>
        ${LOADED_BY_US.has(model.provider) && model.kind === "model" && html`<${ActionButton}
          label=${isInMemory ? t.unload : t.load} run=${async () => {
            await keepInMemory(name, !isInMemory);
            await onMemory();
          }} />`}</div>`} />`;
}

export function ModelsPage({ openSidebar }) {
  const state = useFresh(models);
  const loaded = useFresh(inMemory).value.models.map(({ name }) => name);
  const groups = new Map();
  for (const model of state.value.models) {
    const group = model.kind === "model" ? model.provider : t.kind[model.kind];
    groups.set(group, [...(groups.get(group) ?? []), model]);
  }
  return html`<${PageFrame} title=${t.page.models} openSidebar=${openSidebar}
    actions=${html`<${ActionButton} label=${t.reload} run=${() => Promise.all([models.reload(), inMemory.reload()])} />`}>
    <${Loaded} state=${state}>
      ${state.value.problems.map((problem) => html`<p class="warning" dir="auto" key=${problem.provider}>
        <strong>${problem.provider}</strong>: ${reasonOf(problem)}</p>`)}
      ${[...groups].map(([group, members]) => html`<section key=${group} class="group">
        <h2>${group}</h2>
        <ul class="plain">${members.map((model) => html`<${Model} key=${model.name} model=${model}
          isInMemory=${loaded.includes(model.name)} onMemory=${inMemory.reload} />`)}</ul>
      </section>`)}
    </${Loaded}>
    <${Pulls} />
    <p class="hint">${t.howToPull}</p>
  </${PageFrame}>`;
}
