// Whether the server, its providers and its files are as they should be.

import { get } from "../api.js";
import { html, useEffect, useState } from "../library.js";
import { doctor, health } from "../state/catalogue.js";
import { fail } from "../state/notices.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { PageFrame } from "./page-frame.js";
import { ActionButton, Facts, Loaded, useFresh } from "./parts.js";

function useCheck() {
  const [providers, setProviders] = useState(null);
  const check = () => get("models/check").then((answer) => setProviders(answer.providers), fail);
  useEffect(() => {
    check();
  }, []);
  return [providers, check];
}

function Provider({ name, provider }) {
  const { configured, reachable, models: count, latency_ms: latency, problem } = provider;
  let state = t.isReachable;
  if (!reachable) state = configured ? t.isNotReachable : t.isNotConfigured;
  const tone = reachable ? "done" : configured ? "failed" : "";
  return html`<li class="card line ${tone}"><div class="card-head">
    <span class="name">${name}</span>
    <span class="summary" dir="auto">${problem ? visible(problem) : reachable ? t.modelCount(count ?? 0, latency) : ""}</span>
    <span class="state">${state}</span>
  </div></li>`;
}

/** What the doctor found, by topic; what is well is folded away. */
function Findings({ report }) {
  const topics = new Map();
  for (const finding of report.findings) {
    topics.set(finding.topic, [...(topics.get(finding.topic) ?? []), finding]);
  }
  return html`<ul class="plain">${[...topics].map(([topic, findings]) => html`<li key=${topic}>
    <${Topic} topic=${topic} findings=${findings} /></li>`)}</ul>`;
}

const SEVERITY = ["ok", "note", "warning", "error"];

function Topic({ topic, findings }) {
  const worst = SEVERITY.findLast((level) => findings.some((finding) => finding.level === level));
  const [isOpen, setOpen] = useState(worst === "warning" || worst === "error");
  return html`<div class="card topic is-${worst}">
    <button type="button" class="card-head" aria-expanded=${`${isOpen}`} onClick=${() => setOpen(!isOpen)}>
      <span class="name">${topic}</span><span class="state">${t.findingLevel[worst]}</span>
    </button>
    ${isOpen && html`<ul class="card-body findings">
      ${findings.map(({ level, what, suggestion }) => html`<li key=${what} class="is-${level}">
        <span class="level">${t.findingLevel[level]}</span>
        <div><p dir="auto">${visible(what)}</p>
          ${suggestion && html`<p class="hint" dir="auto">${visible(suggestion)}</p>`}</div></li>`)}
    </ul>`}
  </div>`;
}

export function HealthPage({ openSidebar }) {
  const state = useFresh(health);
  const report = useFresh(doctor);
  const [providers, check] = useCheck();
  const server = state.value;
  const facts = server && [
    [t.status, server.status === "ok" ? t.isWell : server.status],
    [t.version, server.version],
    ["Ollama", `${server.ollama_host} · ${server.ollama_connected ? t.isReachable : t.isNotReachable}`],
    ["Redis", server.redis_connected === null ? t.isNotConfigured
      : server.redis_connected ? t.isReachable : t.isNotReachable],
  ];
  return html`<${PageFrame} title=${t.page.health} openSidebar=${openSidebar}
    actions=${html`<${ActionButton} label=${t.checkAgain}
      run=${() => Promise.all([health.reload(), doctor.reload(), check()])} />`}>
    <${Loaded} state=${state}>${facts && html`<${Facts} facts=${facts} />`}</${Loaded}>
    <section class="group"><h2>${t.providers}</h2>
      ${providers === null ? html`<p class="hint" role="status">${t.loading}</p>` : html`<ul class="plain">
        ${Object.entries(providers).map(([name, provider]) => html`<${Provider} key=${name} name=${name}
          provider=${provider} />`)}</ul>`}
    </section>
    <section class="group"><h2>${t.findings}</h2>
      <${Loaded} state=${report}>${report.value && html`
        <p class="hint">${t.findingCount(report.value.errors, report.value.warnings)}</p>
        <${Findings} report=${report.value} />`}</${Loaded}>
    </section>
  </${PageFrame}>`;
}
