// The tools: what the model gets of them, their source, and what is wrong with their files.

import { get, part, post } from "../api.js";
import { stringify } from "../json.js";
import { html } from "../library.js";
import { tools } from "../state/catalogue.js";
import { t } from "../texts.js";
import { PageFrame } from "./page-frame.js";
import { ActionButton, Code, Empty, Entry, Facts, Loaded, Problems, useFresh } from "./parts.js";

const yesOrNo = (value) => (value ? t.yes : t.no);

function Tool({ tool }) {
  const place = tool.source_file && `${tool.source_file}${tool.line ? `:${tool.line}` : ""}`;
  const facts = [
    [t.toolSource, place ?? tool.tool_source],
    [t.groups, tool.groups.join(", ")],
    [t.isDestructive, tool.destructive === null ? t.notSaid : yesOrNo(tool.destructive)],
    [t.isAsked, Object.entries(tool.needs_confirmation)
      .filter(([, isAsked]) => isAsked).map(([policy]) => t.policies[policy]).join(", ") || t.never],
    [t.timeLimit, tool.timeout && t.seconds(tool.timeout)],
    [t.approval, tool.mcp && t.approvals[tool.mcp.approval]],
  ];
  return html`<p class="text" dir="auto">${tool.shown_description}</p>
    <${Facts} facts=${facts} />
    <h2 class="label">${t.schema}</h2>
    <${Code} label=${t.schema} text=${stringify(tool.parameters, 2)} />
    ${tool.source && html`<h2 class="label">${t.source}</h2><${Code} label=${t.source} text=${tool.source} />`}`;
}

const EXAMPLE = `def count_letters(word: str) -> str:
    """Count the letters of a word."""
    return str(sum(letter.isalpha() for letter in word))`;

export function ToolsPage({ openSidebar }) {
  const state = useFresh(tools);
  const all = Object.values(state.value.tools);
  const reload = async () => {
    await post("tools/reload");
    await tools.reload();
  };
  return html`<${PageFrame} title=${t.page.tools} openSidebar=${openSidebar}
    actions=${html`<${ActionButton} label=${t.reload} run=${reload} />`}>
    <${Loaded} state=${state}>
      <${Problems} problems=${state.value.problems} />
      ${all.length === 0 && html`<${Empty} text=${t.noTools} example=${EXAMPLE} />`}
      <ul class="plain">${all.map(({ name, description }) => html`<${Entry} key=${name} icon="tool"
        name=${name} summary=${description} load=${() => get(`tools/${part(name)}`)}
        body=${(tool) => html`<${Tool} tool=${tool} />`} />`)}</ul>
    </${Loaded}>
  </${PageFrame}>`;
}
