// The settings of a chat: system prompt, options, tools, agents. Each is saved when it is changed.

import { get, part, put, remove } from "../api.js";
import { html, useEffect, useState, useValue } from "../library.js";
import { agents, prompts, tools } from "../state/catalogue.js";
import { reload } from "../state/chat.js";
import { attempt } from "../state/notices.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { IconButton } from "./icons.js";

const OPTIONS = [
  ["temperature", { min: 0, step: 0.1 }],
  ["top_p", { min: 0, max: 1, step: 0.05 }],
  ["top_k", { min: 0, step: 1 }],
  ["max_tokens", { min: 1, step: 1 }],
  ["seed", { step: 1 }],
  ["repeat_penalty", { step: 0.05 }],
];

const POLICIES = ["always_confirm", "confirm_destructive", "never_confirm"];

function SystemPrompt({ sessionId, stored, save }) {
  const [text, setText] = useState(stored);
  const { value } = useValue(prompts.state);
  useEffect(() => {
    prompts.need();
  }, []);
  useEffect(() => setText(stored), [stored, sessionId]);
  const keep = (content) => attempt(async () => {
    if (!sessionId) {
      await save({ system_prompt: content.trim() ? content : undefined });
      return;
    }
    const path = `sessions/${part(sessionId)}/system-prompt`;
    if (content.trim()) await put(path, { content });
    else await remove(path);
    await reload();
  });
  const load = (name) => attempt(async () => {
    const { content } = await get(`system-prompts/${part(name)}`);
    setText(content);
    await keep(content);
  });
  return html`<section class="field">
    <label class="field"><span>${t.systemPrompt}</span>
      <textarea rows="5" dir="auto" value=${text} onInput=${(event) => setText(event.target.value)}
        onChange=${(event) => keep(event.target.value)}></textarea></label>
    ${value.prompts.length > 0 && html`<select aria-label=${t.loadPrompt} value=""
      onChange=${(event) => { load(event.target.value); event.target.value = ""; }}>
      <option value="">${t.loadPrompt}</option>
      ${value.prompts.map(({ filename }) => html`<option key=${filename} value=${filename}>${filename}</option>`)}
    </select>`}
  </section>`;
}

function Options({ options, save }) {
  const set = (name, written) => {
    const next = { ...options };
    if (written === "") delete next[name];
    else next[name] = Number(written);
    save({ options: next });
  };
  return html`<details>
    <summary>${t.options}</summary>
    <div class="options">
      ${OPTIONS.map(([name, limits]) => html`<label class="field" key=${name}>
        <span>${t.option[name]}</span>
        <input type="number" ...${limits} placeholder=${t.usual} value=${options[name] ?? ""}
          onChange=${(event) => set(name, event.target.value)} />
      </label>`)}
    </div>
  </details>`;
}

function Choice({ title, all, chosen, onChange, empty }) {
  const toggle = (name, isOn) =>
    onChange(isOn ? [...chosen, name] : chosen.filter((each) => each !== name));
  const names = [...new Set([...Object.keys(all), ...chosen])].sort();
  return html`<fieldset>
    <legend>${title}</legend>
    ${names.length === 0 && html`<p class="hint">${empty}</p>`}
    ${names.map((name) => html`<label class="check" key=${name} title=${visible(all[name]?.description ?? "")}>
      <input type="checkbox" checked=${chosen.includes(name)}
        onChange=${(event) => toggle(name, event.target.checked)} />
      <bdi>${visible(name)}</bdi>
    </label>`)}
  </fieldset>`;
}

/** The tools that settings name, by name or by group. */
function toolsOf(settings, groups) {
  return [...new Set([...(settings?.tools ?? []), ...(groups[settings?.tool_group] ?? [])])];
}

export function SettingsPanel({ settings, sessionId, save, close }) {
  const toolList = useValue(tools.state).value;
  const agentList = useValue(agents.state).value;
  useEffect(() => {
    tools.need();
    agents.need();
  }, []);
  const ofTools = settings.tool_settings ?? { tools: [], execution_policy: POLICIES[0] };
  const system = sessionId
    ? (settings.messages.find(({ role }) => role === "system")?.content ?? "")
    : (settings.system_prompt ?? "");
  const saveTools = (changes) =>
    save({ tool_settings: { execution_policy: POLICIES[0], ...ofTools, ...changes } });
  return html`<aside class="settings" aria-label=${t.chatSettings}>
    <div class="row"><h2 class="grow">${t.chatSettings}</h2>
      <${IconButton} icon="close" label=${t.close} onClick=${close} /></div>
    <${SystemPrompt} sessionId=${sessionId} stored=${system} save=${save} />
    <${Options} options=${settings.options ?? {}} save=${save} />
    <label class="field"><span>${t.policy}</span>
      <select value=${ofTools.execution_policy ?? POLICIES[0]}
        onChange=${(event) => saveTools({ execution_policy: event.target.value })}>
        ${POLICIES.map((name) => html`<option key=${name} value=${name}>${t.policies[name]}</option>`)}
      </select></label>
    <${Choice} title=${t.page.tools} all=${toolList.tools} empty=${t.noTools}
      chosen=${toolsOf(ofTools, toolList.groups)}
      onChange=${(names) => saveTools({ tools: names, tool_group: null })} />
    <${Choice} title=${t.page.agents} all=${agentList.agents} empty=${t.noAgents}
      chosen=${settings.agent_settings?.enabled_agents ?? []}
      onChange=${(names) => save({ agent_settings: { ...settings.agent_settings, enabled_agents: names } })} />
  </aside>`;
}
