// The agents: what they are told, what they may call, and what is wrong with their files.

import { get, part, post } from "../api.js";
import { html } from "../library.js";
import { agents } from "../state/catalogue.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { PageFrame } from "./page-frame.js";
import { ActionButton, Code, Empty, Entry, Facts, Loaded, Problems, useFresh } from "./parts.js";

function Agent({ agent }) {
  const facts = [
    [t.description, agent.description],
    [t.model, agent.model ?? t.modelOfConversation],
    [t.page.tools, agent.tools.join(", ")],
    [t.page.agents, (agent.agents ?? []).join(", ")],
    [t.folder, agent.path],
    [t.licence, agent.license],
  ];
  return html`<${Facts} facts=${facts} />
    ${agent.error_message && html`<p class="error-text" dir="auto">${visible(agent.error_message)}</p>`}
    ${agent.system_prompt && html`<h2 class="label">${t.systemPrompt}</h2>
      <${Code} label=${t.systemPrompt} text=${agent.system_prompt} />`}`;
}

const EXAMPLE = `---
name: proofreader
description: Corrects a text. Use it before a text is sent.
---

Correct spelling and grammar, and say in one line what you changed.`;

export function AgentsPage({ openSidebar }) {
  const state = useFresh(agents);
  const all = Object.values(state.value.agents);
  const reload = async () => {
    await post("agents/reload");
    await agents.reload();
  };
  return html`<${PageFrame} title=${t.page.agents} openSidebar=${openSidebar}
    actions=${html`<${ActionButton} label=${t.reload} run=${reload} />`}>
    <${Loaded} state=${state}>
      <${Problems} problems=${state.value.problems} />
      ${all.length === 0 && html`<${Empty} text=${t.noAgents} example=${EXAMPLE} />`}
      <ul class="plain">${all.map((agent) => html`<${Entry} key=${agent.name} icon="agent"
        name=${agent.name} summary=${agent.description} tone=${agent.valid ? "" : "failed"}
        state=${agent.valid ? t.toolCount(agent.tool_count) : t.cannotBeUsed}
        load=${() => (agent.valid ? get(`agents/${part(agent.name)}`) : agent)}
        body=${(content) => html`<${Agent} agent=${content} />`} />`)}</ul>
    </${Loaded}>
  </${PageFrame}>`;
}
