// The pages that show what the server has: models, tools, agents, presets, health.

import { get, part, post } from "../api.js";
import { html, useEffect, useState, useValue } from "../library.js";
import { agents, health, models, presets, tools } from "../state/catalogue.js";
import { attempt, fail } from "../state/notices.js";
import { t } from "../texts.js";
import { shownArguments, visible } from "../visible.js";
import { PageFrame } from "./page-frame.js";

/** Load a resource each time its page is opened; return its value, and whether it has one. */
export function useFresh(resource) {
  const state = useValue(resource.state);
  useEffect(() => {
    resource.reload();
  }, []);
  return state;
}

export function Reload({ resource, path }) {
  const run = () => attempt(async () => {
    if (path) await post(path);
    await resource.reload();
  });
  return html`<button type="button" onClick=${run}>${t.reload}</button>`;
}

export function Problems({ list }) {
  if (!list?.length) return null;
  return html`<section class="problems"><h2>${t.problems}</h2><ul>
    ${list.map((problem, index) => html`<li key=${index} dir="auto">
      ${problem.file && html`<code dir="ltr">${visible(problem.file)}${problem.line ? `:${problem.line}` : ""}</code>`}
      ${problem.provider && html`<strong>${problem.provider}</strong>`}
      <span> ${visible(problem.reason ?? problem.message ?? "")}</span>
    </li>`)}
  </ul></section>`;
}

/** An entry that opens; `load` gets what it shows then, and `view` draws it. */
function Entry({ name, note, description, load, view }) {
  const [details, setDetails] = useState(null);
  const onToggle = (event) => {
    if (event.target.open && !details) load().then(setDetails, fail);
  };
  return html`<details class="entry" onToggle=${onToggle}>
    <summary><strong><bdi>${visible(name)}</bdi></strong>
      ${note && html`<span class="tag">${visible(note)}</span>`}
      <span class="hint" dir="auto">${visible(description ?? "")}</span></summary>
    ${details ? view(details) : html`<p class="hint">${t.loading}</p>`}
  </details>`;
}

const code = (title, text) =>
  text && html`<p class="label">${title}</p><pre class="code" tabindex="0" dir="ltr">${visible(text)}</pre>`;

export function ModelsPage({ openSidebar }) {
  const { value, error, loaded } = useFresh(models);
  return html`<${PageFrame} title=${t.page.models} openSidebar=${openSidebar}
    actions=${html`<${Reload} resource=${models} />`}>
    ${error && html`<p class="error-text">${error.message}</p>`}
    ${loaded && value.models.length === 0 && html`<p class="hint">${t.howToGetModel}</p>`}
    ${value.models.length > 0 && html`<div class="markdown"><div class="table" tabindex="0" role="region" aria-label=${t.table}><table>
      <thead><tr>${t.modelColumns.map((name) => html`<th key=${name}>${name}</th>`)}</tr></thead>
      <tbody>${value.models.map((model) => html`<tr key=${model.name}>
        <td><bdi>${visible(model.name)}</bdi></td><td>${model.provider}</td>
        <td>${model.parameter_size ?? ""}</td>
        <td>${model.size_mb ? t.megabytes(model.size_mb) : ""}</td>
        <td>${model.context_length ?? ""}</td><td>${model.capabilities.join(", ")}</td>
      </tr>`)}</tbody></table></div></div>`}
    <${Problems} list=${value.problems} />
  </${PageFrame}>`;
}

export function ToolsPage({ openSidebar }) {
  const { value, error } = useFresh(tools);
  const view = (tool) => html`
    <p class="hint">${tool.groups.join(", ")} · ${tool.destructive === false ? t.harmless : t.destructive} · ${tool.tool_source}</p>
    ${code(t.schema, JSON.stringify(tool.parameters, null, 2))}
    ${code(tool.source_file ? `${visible(tool.source_file)}:${tool.line}` : t.source, tool.source)}`;
  const all = Object.values(value.tools);
  return html`<${PageFrame} title=${t.page.tools} openSidebar=${openSidebar}
    actions=${html`<${Reload} resource=${tools} path="tools/reload" />`}>
    ${error && html`<p class="error-text">${error.message}</p>`}
    <${Problems} list=${value.problems} />
    ${all.length === 0 && html`<p class="hint">${t.noTools}</p>`}
    ${all.map(({ name, description }) => html`<${Entry} key=${name} name=${name}
      description=${description} load=${() => get(`tools/${part(name)}`)} view=${view} />`)}
  </${PageFrame}>`;
}

export function AgentsPage({ openSidebar }) {
  const { value, error } = useFresh(agents);
  const view = (agent) => html`
    <p class="hint">${agent.model ?? t.modelOfChat} · ${agent.tools.join(", ")}</p>
    ${code(t.systemPrompt, agent.system_prompt)}`;
  const all = Object.values(value.agents);
  return html`<${PageFrame} title=${t.page.agents} openSidebar=${openSidebar}
    actions=${html`<${Reload} resource=${agents} path="agents/reload" />`}>
    ${error && html`<p class="error-text">${error.message}</p>`}
    <${Problems} list=${value.problems} />
    ${all.length === 0 && html`<p class="hint">${t.noAgents}</p>`}
    ${all.map(({ name, description, valid }) => html`<${Entry} key=${name} name=${name}
      note=${valid ? null : t.unusable} description=${description}
      load=${() => get(`agents/${part(name)}`)} view=${view} />`)}
  </${PageFrame}>`;
}

export function PresetsPage({ openSidebar }) {
  const { value, error } = useFresh(presets);
  const view = (preset) => html`
    <pre class="code" tabindex="0" dir="ltr">${shownArguments(preset)}</pre>`;
  return html`<${PageFrame} title=${t.page.presets} openSidebar=${openSidebar}
    actions=${html`<${Reload} resource=${presets} />`}>
    ${error && html`<p class="error-text">${error.message}</p>`}
    ${value.presets.length === 0 && html`<p class="hint">${t.noPresets}</p>`}
    ${value.presets.map(({ name, description, model, valid, error_message: problem }) => html`<${Entry}
      key=${name} name=${name} note=${valid ? model : t.unusable} description=${problem ?? description}
      load=${() => get(`presets/${part(name)}`)} view=${view} />`)}
  </${PageFrame}>`;
}

export function HealthPage({ openSidebar }) {
  const { value, error } = useFresh(health);
  return html`<${PageFrame} title=${t.page.health} openSidebar=${openSidebar}
    actions=${html`<${Reload} resource=${health} />`}>
    ${error && html`<p class="error-text">${error.message}</p>`}
    ${value && html`<p>mochi-server ${value.version}: <strong>${value.status}</strong></p>
      <ul>${Object.entries(value.providers).map(([name, { reachable }]) => html`<li key=${name}>
        <strong>${name}</strong>: ${reachable ? t.answers : t.answersNot}</li>`)}
        ${value.redis_connected !== null && html`<li><strong>Redis</strong>: ${value.redis_connected ? t.answers : t.answersNot}</li>`}
      </ul>
      <p class="hint">${t.doctorHint}</p>`}
  </${PageFrame}>`;
}
