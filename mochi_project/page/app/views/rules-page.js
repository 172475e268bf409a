// The rules that decide about calls before a person is asked.

import { get, part, query, remove } from "../api.js";
import { html, useEffect, useState } from "../library.js";
import { rules } from "../state/catalogue.js";
import { attempt, notify } from "../state/notices.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { confirm } from "./dialog.js";
import { IconButton } from "./icons.js";
import { PageFrame } from "./page-frame.js";
import { Empty, Facts, Loaded, Moment, useFresh } from "./parts.js";

const nameOf = (rule) => (rule.tool === "*" ? t.everyTool : rule.tool);

function Rule({ rule, onRemoved }) {
  const name = visible(nameOf(rule));
  const patterns = Object.entries(rule.arguments ?? {});
  const facts = [
    ...patterns.map(([argument, pattern]) => [visible(argument), html`<code>${visible(pattern)}</code>`]),
    [t.onlyFrom, rule.tool_source],
    [t.madeAt, rule.created_at && html`<${Moment} at=${rule.created_at} />`],
    [t.madeBy, rule.created_by],
  ];
  const onRemove = async () => {
    if (!(await confirm(t.removeRule(name), t.removeThisRule, t.remove))) return;
    await attempt(async () => {
      await remove(`policies/${part(rule.id)}${query({ session_id: rule.session_id })}`);
      notify(t.ruleRemoved(name));
      await onRemoved();
    });
  };
  return html`<li class="card rule ${rule.action}">
    <div class="card-head">
      <span class="name" dir="auto">${name}</span>
      ${patterns.length === 0 && html`<span class="summary">${t.everyCall}</span>`}
      <span class="state">${t.ruleAction[rule.action]}</span>
      <${IconButton} icon="trash" label=${t.removeRule(name)} onClick=${onRemove} />
    </div>
    <div class="card-body"><${Facts} facts=${facts} /></div>
  </li>`;
}

export function RuleList({ rules: shown, onRemoved }) {
  return html`<ul class="plain">${shown.map((rule) => html`<${Rule} key=${rule.id} rule=${rule}
    onRemoved=${onRemoved} />`)}</ul>`;
}

/** The rules that hold in one session alone; nothing where there are none. */
export function RulesOfSession({ sessionId }) {
  const [ofSession, setOfSession] = useState([]);
  const load = () => attempt(async () => {
    const { policies: all } = await get(`policies${query({ session_id: sessionId })}`);
    setOfSession(all.filter((rule) => rule.session_id));
  });
  useEffect(() => {
    load();
  }, [sessionId]);
  if (ofSession.length === 0) return null;
  return html`<section class="group" aria-label=${t.rulesOfConversation}>
    <h3 class="label">${t.rulesOfConversation}</h3>
    <${RuleList} rules=${ofSession} onRemoved=${load} />
  </section>`;
}

const EXAMPLE = `[
  {"tool": "write_file", "action": "allow", "arguments": {"path": "notes/*"}},
  {"tool": "send_mail", "action": "ask"}
]`;

export function RulesPage({ openSidebar }) {
  const state = useFresh(rules);
  const { policies: all, problems } = state.value;
  return html`<${PageFrame} title=${t.page.rules} openSidebar=${openSidebar}>
    <p class="hint">${t.aboutRules}</p>
    <${Loaded} state=${state}>
      ${problems.map((problem) => html`<p class="warning" dir="auto" key=${problem}>${visible(problem)}</p>`)}
      ${all.length === 0 && problems.length === 0 && html`<${Empty} text=${t.noRules} example=${EXAMPLE} />`}
      <${RuleList} rules=${all} onRemoved=${rules.reload} />
    </${Loaded}>
  </${PageFrame}>`;
}
