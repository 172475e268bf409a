// Whether the server, its providers and its files are as they should be.

import { get } from "../api.js";
import { html, useEffect, useState } from "../library.js";
import { agents, health, presets, tools } from "../state/catalogue.js";
import { fail } from "../state/notices.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { PageFrame } from "./page-frame.js";
import { ActionButton, Facts, Loaded, Problems, useFresh } from "./parts.js";

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

export function HealthPage({ openSidebar }) {
  const state = useFresh(health);
  const ofTools = useFresh(tools).value.problems;
  const ofAgents = useFresh(agents).value.problems;
  const ofPresets = useFresh(presets).value.presets.filter(({ valid }) => !valid);
  const [providers, check] = useCheck();
  const problems = [
    ...ofTools, ...ofAgents,
    ...ofPresets.map(({ error_message: reason }) => ({ file: "", line: null, reason, severity: "warning" })),
  ];
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
      run=${() => Promise.all([health.reload(), tools.reload(), agents.reload(), presets.reload(), check()])} />`}>
    <${Loaded} state=${state}>${facts && html`<${Facts} facts=${facts} />`}</${Loaded}>
    <section class="group"><h2>${t.providers}</h2>
      ${providers === null ? html`<p class="hint" role="status">${t.loading}</p>` : html`<ul class="plain">
        ${Object.entries(providers).map(([name, provider]) => html`<${Provider} key=${name} name=${name}
          provider=${provider} />`)}</ul>`}
    </section>
    ${problems.length === 0 && html`<p class="hint">${t.noProblems}</p>`}
    <${Problems} problems=${problems} />
    <p class="hint">${t.aboutDoctor}</p>
  </${PageFrame}>`;
}
