// The settings of a chat; each is saved as soon as it is changed.

import { get, part, put, remove } from "../api.js";
import { html, useFocus, useValue } from "../library.js";
import { agents, prompts, tools } from "../state/catalogue.js";
import { attempt } from "../state/notices.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { IconButton } from "./icons.js";
import { Loaded } from "./parts.js";
import { RulesOfSession } from "./rules-page.js";
import { AgentChoices, OptionFields, PolicyField, ToolChoices, useChoices, useWritten } from "./setting-fields.js";
import { ToolModeField } from "./tool-list.js";

function promptOf(settings) {
  const first = settings.messages?.[0];
  return (first?.role === "system" ? first.content : settings.system_prompt) ?? "";
}

/** The system prompt: a text, or that of a file, which can be changed then. */
function SystemPrompt({ value, onChange }) {
  const { value: files } = useValue(prompts.state);
  const [written, write] = useWritten(value, onChange);
  const take = async (filename) => {
    if (!filename) return;
    const { content } = await get(`system-prompts/${part(filename)}`);
    await write(content);
  };
  return html`<div class="field">
    <label class="field"><span>${t.systemPrompt}</span>
      <textarea rows="6" dir="auto" maxlength="9999" ...${written}></textarea></label>
    ${files.prompts.length > 0 && html`<select aria-label=${t.takePrompt} value=""
      onChange=${(event) => attempt(() => take(event.target.value))}>
      <option value="">${t.takePrompt}</option>
      ${files.prompts.map(({ filename }) => html`<option key=${filename} value=${filename}>${visible(filename)}</option>`)}
    </select>`}
  </div>`;
}

/** The size of the context window: chosen by the server, or fixed. */
function WindowField({ status, save }) {
  const { manual_override: isFixed, current_window: size } = status.context_window;
  const [written] = useWritten(isFixed ? size : "", (text) => save({
    context_window: text === ""
      ? { manual_override: false }
      : { manual_override: true, current_window: Number(text) },
  }));
  return html`<label class="field"><span>${t.fixedWindow}</span>
    <input type="number" min="512" step="1" placeholder=${t.usual} ...${written} /></label>`;
}

/** `settings` are those of the chat, or what a new one will have; `kept` is of `useChatSettings`. */
export function SettingsPanel({ chat, settings, status, close, kept }) {
  const { values, policy, set, setTools } = kept;
  const setPrompt = (text) => attempt(async () => {
    const path = `${chat.path}/system-prompt`;
    if (!chat.id) await set({ system_prompt: text.trim() ? text : undefined });
    else await chat.change(() => (text.trim() ? put(path, { content: text }) : remove(path)));
  });
  const { tool_settings: ofTools, agent_settings: ofAgents } = values;
  const onKey = (event) => {
    if (event.key !== "Escape") return;
    document.activeElement.blur(); // what is being written is saved when its field is left
    close();
  };
  return html`<aside class="settings" aria-label=${t.chatSettings} tabindex="-1" ref=${useFocus()} onKeyDown=${onKey}>
    <div class="row"><h2 class="grow">${t.chatSettings}</h2>
      <${IconButton} icon="close" label=${t.close} onClick=${close} /></div>
    <${SystemPrompt} value=${promptOf(settings)} onChange=${setPrompt} />
    <${Loaded} state=${{ loaded: useChoices(tools, agents, prompts) }}>
      <${ToolChoices} settings=${ofTools} onChange=${setTools} />
      <${PolicyField} value=${policy} onChange=${(execution_policy) => setTools({ execution_policy })} />
      <${ToolModeField} value=${ofTools.tool_mode} onChange=${(tool_mode) => setTools({ tool_mode })} />
      <${AgentChoices} chosen=${ofAgents.enabled_agents ?? []}
        onChange=${(names) => set({ agent_settings: { ...ofAgents, enabled_agents: names } })} />
      <${OptionFields} value=${values.options} onChange=${(options) => set({ options })} />
      ${status && html`<${WindowField} status=${status} save=${set} />`}
      ${chat.id && html`<${RulesOfSession} sessionId=${chat.id} />`}
    </${Loaded}>
  </aside>`;
}
