// The pages on which something is written: prompts and MCP servers.

import { get, part, patch, post, put, remove } from "../api.js";
import { html } from "../library.js";
import { prompts, servers } from "../state/catalogue.js";
import { attempt } from "../state/notices.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { Problems, Reload, useFresh } from "./catalogue-pages.js";
import { askText, confirm, confirmLink } from "./dialog.js";
import { PageFrame } from "./page-frame.js";

async function editPrompt(name) {
  const { content } = await get(`system-prompts/${part(name)}`);
  const text = await askText(name, { value: content, label: t.systemPrompt, multiline: true });
  if (text !== null) await put(`system-prompts/${part(name)}`, { content: text });
  await prompts.reload();
}

async function addPrompt() {
  const name = await askText(t.newPrompt, { label: t.fileName, value: "prompt.md" });
  if (!name) return;
  const text = await askText(name, { label: t.systemPrompt, multiline: true });
  if (text) await post("system-prompts", { filename: name, content: text });
  await prompts.reload();
}

async function deletePrompt(name) {
  if (!(await confirm(t.delete, name, t.delete))) return;
  await remove(`system-prompts/${part(name)}`);
  await prompts.reload();
}

export function PromptsPage({ openSidebar }) {
  const { value, error } = useFresh(prompts);
  return html`<${PageFrame} title=${t.page.prompts} openSidebar=${openSidebar}
    actions=${html`<button type="button" onClick=${() => attempt(addPrompt)}>${t.newPrompt}</button>`}>
    ${error && html`<p class="error-text">${error.message}</p>`}
    ${value.prompts.length === 0 && html`<p class="hint">${t.noPrompts}</p>`}
    <ul class="plain">${value.prompts.map(({ filename, preview }) => html`<li class="entry row" key=${filename}>
      <span class="grow"><strong><bdi>${filename}</bdi></strong> <span class="hint" dir="auto">${visible(preview)}</span></span>
      <button type="button" onClick=${() => attempt(() => editPrompt(filename))}>${t.editQuestion}</button>
      <button type="button" onClick=${() => attempt(() => deletePrompt(filename))}>${t.delete}</button>
    </li>`)}</ul>
  </${PageFrame}>`;
}

async function addServer() {
  const name = await askText(t.newServer, { label: t.serverName });
  if (!name) return;
  const text = await askText(name, {
    label: t.serverConfig, multiline: true, value: '{\n  "command": "uvx",\n  "args": ["mcp-server-time"]\n}',
  });
  if (text) await post("mcp/add", { name, config: JSON.parse(text) });
  await servers.reload();
}

async function deleteServer(name) {
  if (!(await confirm(t.delete, name, t.delete))) return;
  await remove(`mcp/${part(name)}`);
  await servers.reload();
}

function Server({ server }) {
  const { name, state, tools, last_error: problem, authorization_url: address, config } = server;
  const act = (action) => attempt(async () => {
    await action();
    await servers.reload();
  });
  const isDisabled = state === "disabled";
  return html`<li class="entry">
    <div class="row wrap">
      <strong class="grow"><bdi>${visible(name)}</bdi></strong><span class="tag">${t.serverState[state] ?? state}</span>
      ${address && html`<button type="button" class="primary" onClick=${() => confirmLink(address)}>${t.authorize}</button>`}
      <button type="button" onClick=${() => act(() => post(`mcp/${part(name)}/restart`))}>${t.restart}</button>
      <button type="button" onClick=${() => act(() => patch(`mcp/${part(name)}`, { config: { disabled: !isDisabled } }))}>
        ${isDisabled ? t.enable : t.disable}</button>
      <button type="button" onClick=${() => attempt(() => deleteServer(name))}>${t.delete}</button>
    </div>
    ${problem && html`<p class="error-text" dir="auto">${visible(problem)}</p>`}
    <p class="hint" dir="auto">${tools.map(visible).join(", ")}</p>
    <pre class="code" tabindex="0" dir="ltr">${visible(JSON.stringify(config, null, 2))}</pre>
  </li>`;
}

export function ServersPage({ openSidebar }) {
  const { value, error } = useFresh(servers);
  const all = Object.values(value.servers);
  return html`<${PageFrame} title=${t.page.servers} openSidebar=${openSidebar} actions=${html`
      <button type="button" onClick=${() => attempt(addServer)}>${t.newServer}</button>
      <${Reload} resource=${servers} />`}>
    ${error && html`<p class="error-text">${error.message}</p>`}
    <${Problems} list=${value.problems} />
    ${all.length === 0 && html`<p class="hint">${t.noServers}</p>`}
    <ul class="plain">${all.map((server) => html`<${Server} key=${server.name} server=${server} />`)}</ul>
  </${PageFrame}>`;
}
