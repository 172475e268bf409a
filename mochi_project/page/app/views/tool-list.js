// The choice of tools: in groups, with what each does, and which ones may change or delete something.

import { html, useRef, useState, useValue } from "../library.js";
import { tools } from "../state/catalogue.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { Loaded, NoneYet } from "./parts.js";

const MANY = 8; // from there on they can be searched

/** Return the names that settings choose: those of their group as well. */
export function chosenTools({ tools: names = [], tool_group: group }, { groups }) {
  const ofGroup = Object.hasOwn(groups, group) ? groups[group] : [];
  return [...new Set([...ofGroup, ...names])];
}

/** Return `{name, members}` of each group; a tool is in the first one that has it, others in one without a name. */
function grouped({ tools: all, groups }) {
  const rest = new Map(Object.entries(all));
  const take = (name) => {
    const tool = rest.get(name);
    rest.delete(name);
    return tool;
  };
  const named = Object.entries(groups).map(([name, names]) => ({ name, members: names.map(take).filter(Boolean) }));
  return [...named, { name: "", members: [...rest.values()] }].filter(({ members }) => members.length > 0);
}

function Tool({ name, description, destructive, isChosen, set, disabled }) {
  return html`<label class="check tool">
  <input type="checkbox" checked=${isChosen} disabled=${disabled} onChange=${(event) => set([name], event.target.checked)} />
  <span class="about-tool">
    <span dir="auto">${visible(name)}
      ${destructive !== false && html` <span class="tag" title=${destructive === null ? t.notSaid : null}>${t.isDestructive}</span>`}
    </span>
    <span class="hint" dir="auto">${visible(description)}</span>
  </span></label>`;
}

function Group({ name, members, chosen, set, disabled }) {
  const names = members.map((member) => member.name);
  const count = names.filter((each) => chosen.has(each)).length;
  return html`<div role="group" aria-label=${visible(name || t.otherTools)}>
    <label class="check group-name">
      <input type="checkbox" checked=${count === names.length} indeterminate=${count > 0 && count < names.length}
        disabled=${disabled} onChange=${(event) => set(names, event.target.checked)} />
      <span dir="auto">${t.allOf(visible(name || t.otherTools), count, names.length)}</span></label>
    ${members.map((tool) => html`<${Tool} key=${tool.name} ...${tool} isChosen=${chosen.has(tool.name)}
      set=${set} disabled=${disabled} />`)}
  </div>`;
}

/** Return the groups with what was chosen when the list was opened at the top: nothing moves under the pointer. */
function useChosenFirst(groups, chosen, loaded) {
  const first = useRef(null);
  if (loaded) first.current ??= chosen;
  const isFirst = ({ name }) => first.current?.has(name) ?? false;
  const hasFirst = ({ members }) => members.some(isFirst);
  return groups
    .map(({ name, members }) => ({ name, members: [...members].sort((a, b) => isFirst(b) - isFirst(a)) }))
    .sort((a, b) => hasFirst(b) - hasFirst(a));
}

/**
 * Return the names that are chosen, or were since the list was opened: one that does not exist can be
 * chosen again.
 */
export function useOnceChosen(names) {
  const once = useRef([]);
  once.current = [...new Set([...once.current, ...names])];
  return once.current;
}

/** `settings` are those of tools; `onChange(changes)` gets what a choice changes of them. */
export function ToolList({ settings, onChange, disabled = false, field }) {
  const state = useValue(tools.state);
  const { value, loaded } = state;
  const [words, setWords] = useState("");
  const names = chosenTools(settings, value);
  const chosen = new Set(names);
  const set = (changed, isOn) => onChange({
    tools: isOn ? [...new Set([...names, ...changed])] : names.filter((name) => !changed.includes(name)),
    ...(settings.tool_group && { tool_group: null }),
  });
  const missing = useOnceChosen(names).filter((name) => !Object.hasOwn(value.tools, name))
    .map((name) => ({ name, description: t.doesNotExist, destructive: false }));
  const wanted = words.toLowerCase().split(/\s+/);
  const isWanted = (tool) => wanted.every((word) => `${tool.name} ${tool.description}`.toLowerCase().includes(word));
  const named = useChosenFirst(grouped(value), chosen, loaded);
  const all = loaded && missing.length > 0 ? [{ name: t.missingTools, members: missing }, ...named] : named;
  const shown = all.map(({ name, members }) => ({
    name, members: name.toLowerCase().includes(words.toLowerCase()) ? members : members.filter(isWanted),
  })).filter(({ members }) => members.length > 0);
  return html`
    ${Object.keys(value.tools).length > MANY && html`<input type="search" aria-label=${t.searchIn(t.page.tools)}
      placeholder=${t.search} value=${words} ref=${field} onInput=${(event) => setWords(event.target.value)} />`}
    <div class="choices" tabindex="0" role="group" aria-label=${t.page.tools}>
      ${shown.map((group) => html`<${Group} key=${group.name} ...${group} chosen=${chosen} set=${set} disabled=${disabled} />`)}
    </div>
    <${Loaded} state=${state}>
      ${shown.length === 0 && (all.length === 0 ? html`<${NoneYet} page="tools" />` : html`<p class="hint">${t.nothingFound}</p>`)}
    </${Loaded}>`;
}

/** Whether the system prompt describes the tools; null where nothing says it. */
export function ToolModeField({ value, onChange }) {
  return html`<label class="check"><input type="checkbox" checked=${value === "prompted"}
    onChange=${(event) => onChange(event.target.checked ? "prompted" : "native")} />
    <span>${t.describesTools}</span></label>`;
}
