// Whether the server, its providers and its files are as they should be.

import { html, useState } from "../library.js";
import { doctor, health, providers } from "../state/catalogue.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { PageFrame } from "./page-frame.js";
import { ActionButton, Facts, Loaded, reasonOf, useFresh } from "./parts.js";

function Provider({ name, provider }) {
  const { configured, reachable, models: count, latency_ms: latency, problem } = provider;
  let state = t.isReachable;
  if (!reachable) state = configured ? t.isNotReachable : t.isNotConfigured;
  const tone = reachable ? "done" : configured ? "failed" : "";
  return html`<li class="card line ${tone}"><div class="card-head">
    <span class="name">${name}</span>
    <span class="summary" dir="auto">${problem ? reasonOf(problem) : reachable ? t.modelCount(count ?? 0, latency) : ""}</span>
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

function Server({ server }) {
  const { status, version, ollama_host: host, ollama_connected: isOllama, redis_connected: redis } = server;
  return html`<${Facts} facts=${[
    [t.status, status === "ok" ? t.isWell : status],
    [t.version, version],
    ["Ollama", `${host} · ${isOllama ? t.isReachable : t.isNotReachable}`],
    ["Redis", redis === null ? t.isNotConfigured : redis ? t.isReachable : t.isNotReachable],
  ]} />`;
}

function Providers({ all }) {
  return html`<ul class="plain">${Object.entries(all).map(([name, provider]) => html`<${Provider}
    key=${name} name=${name} provider=${provider} />`)}</ul>`;
}

function Report({ report }) {
  return html`<p class="hint">${t.findingCount(report.errors, report.warnings)}</p>
    <${Findings} report=${report} />`;
}

/** Each section is loaded, and fails, by itself. */
export function HealthPage({ openSidebar }) {
  const server = useFresh(health);
  const checked = useFresh(providers);
  const report = useFresh(doctor);
  return html`<${PageFrame} title=${t.page.health} openSidebar=${openSidebar}
    actions=${html`<${ActionButton} label=${t.checkAgain}
      run=${() => Promise.all([health, providers, doctor].map((each) => each.reload()))} />`}>
    <${Loaded} state=${server}>${server.value && html`<${Server} server=${server.value} />`}</${Loaded}>
    <section class="group"><h2>${t.providers}</h2>
      <${Loaded} state=${checked}>${checked.value && html`<${Providers} all=${checked.value.providers} />`}</${Loaded}>
    </section>
    <section class="group"><h2>${t.findings}</h2>
      <${Loaded} state=${report}>${report.value && html`<${Report} report=${report.value} />`}</${Loaded}>
    </section>
  </${PageFrame}>`;
}
