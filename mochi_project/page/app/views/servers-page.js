// The MCP servers: how they are, what they offer, what they have written; they can be changed here.

import { follow, get, part, patch, post, remove } from "../api.js";
import { html, useEffect, useRef, useState } from "../library.js";
import { servers } from "../state/catalogue.js";
import { attempt, fail } from "../state/notices.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { confirm, confirmLink, openDialog } from "./dialog.js";
import { PageFrame } from "./page-frame.js";
import { ActionButton, Code, Empty, Entry, Facts, Loaded, Problems, useFresh } from "./parts.js";

const TONES = { ready: "done", starting: "running", failed: "failed", needs_authorization: "asking" };
const EXAMPLE = `{
  "mcpServers": {
    "time": {"command": "uvx", "args": ["mcp-server-time"]}
  }
}`;

/** Return `[name, config]` of each server of a block `{"mcpServers": {…}}`, or of one configuration. */
function serversIn(text, name) {
  const given = JSON.parse(text);
  const block = given.mcpServers;
  if (block) return Object.entries(block);
  if (!name) throw new Error(t.nameIsMissing);
  return [[name, given]];
}

const then = (action) => async () => {
  await action();
  await servers.reload();
};

async function askToRemove(name) {
  if (!(await confirm(t.removeServer, visible(name), t.remove))) return;
  await attempt(then(() => remove(`mcp/${part(name)}`)));
}

function AddServer({ close }) {
  const [problem, setProblem] = useState(null);
  const added = useRef(new Set());
  const isSending = useRef(false);
  const submit = async (event) => {
    event.preventDefault();
    if (isSending.current) return; // a second click
    isSending.current = true;
    const form = new FormData(event.target);
    try {
      const given = serversIn(form.get("config"), form.get("name").trim());
      for (const [name, config] of given) {
        if (!added.current.has(name)) await post("mcp/add", { name, config });
        added.current.add(name); // what follows may be refused, and sent again
      }
      close();
    } catch (error) {
      setProblem(error instanceof SyntaxError ? t.notJson(error.message) : error.message);
    }
    isSending.current = false;
    await servers.reload();
  };
  return html`<form class="form" onSubmit=${submit}>
    <label class="field"><span>${t.nameOfServer}</span><input name="name" autocomplete="off" /></label>
    <label class="field"><span>${t.configuration}</span>
      <textarea name="config" class="code" rows="7" dir="ltr" spellcheck="false" required placeholder=${EXAMPLE}></textarea></label>
    <p class="warning">${t.serverIsProgram}</p>
    ${problem && html`<p class="error-text" role="alert" dir="auto">${problem}</p>`}
    <div class="row end">
      <button type="button" onClick=${() => close()}>${t.cancel}</button>
      <button class="primary">${t.add}</button>
    </div>
  </form>`;
}

function Server({ server }) {
  const { name, config, state } = server;
  const unusable = Object.entries(server.unusable).map(([tool, reason]) => `${tool}: ${reason}`);
  const facts = [
    [t.transport, server.transport],
    [t.page.tools, server.tools.join(", ")],
    [t.cannotBeUsed, unusable.join("; ")],
  ];
  const [log, setLog] = useState(null);
  const loadLog = async () => setLog((await get(`mcp/${part(name)}/log`)).lines);
  const disable = (disabled) => patch(`mcp/${part(name)}`, { config: { disabled } });
  // What comes and goes by itself is below the buttons: it must not move them.
  return html`<div class="row wrap">
      <${ActionButton} small label=${t.restart} isOff=${state === "disabled"}
        run=${then(() => post(`mcp/${part(name)}/restart`))} />
      <${ActionButton} small label=${state === "disabled" ? t.enable : t.disable}
        run=${then(() => disable(state !== "disabled"))} />
      <button type="button" class="danger small" onClick=${() => askToRemove(name)}>${t.remove}</button>
      <${ActionButton} small label=${log === null ? t.showLog : t.reload} run=${loadLog} />
    </div>
    ${server.last_error && html`<p class="error-text" dir="auto">${visible(server.last_error)}</p>`}
    ${server.authorization_url && html`<p><button type="button" class="primary"
      onClick=${() => confirmLink(server.authorization_url)}>${t.authorize}</button></p>`}
    ${log !== null && (log.length === 0
      ? html`<p class="hint">${t.logIsEmpty}</p>`
      : html`<${Code} label=${t.log} text=${log.join("\n")} />`)}
    <${Facts} facts=${facts} />
    <h2 class="label">${t.configuration}</h2>
    <${Code} label=${t.configuration} text=${JSON.stringify(config, null, 2)} />`;
}

/** Load the list again whenever a server changes. */
function useEvents() {
  useEffect(() => {
    const abort = new AbortController();
    (async () => {
      for await (const _ of follow("mcp/events", { signal: abort.signal })) servers.reload();
    })().catch(fail);
    return () => abort.abort();
  }, []);
}

export function ServersPage({ openSidebar }) {
  const state = useFresh(servers);
  useEvents();
  const all = Object.values(state.value.servers);
  return html`<${PageFrame} title=${t.page.servers} openSidebar=${openSidebar}
    actions=${html`<button type="button" onClick=${() => openDialog(t.addServer, AddServer)}>${t.add}</button>`}>
    <p class="hint">${t.aboutServers}</p>
    <${Loaded} state=${state}>
      <${Problems} problems=${state.value.problems} />
      ${all.length === 0 && html`<${Empty} text=${t.noServers} example=${EXAMPLE}>
        <button type="button" onClick=${() => openDialog(t.addServer, AddServer)}>${t.addServer}</button></${Empty}>`}
      <ul class="plain">${all.map((server) => html`<${Entry} key=${server.name} icon="server"
        name=${server.name} summary=${server.last_error ?? t.toolCount(server.tools.length)}
        tone=${TONES[server.state] ?? ""} state=${t.serverState[server.state]}
        body=${() => html`<${Server} server=${server} />`} />`)}</ul>
    </${Loaded}>
  </${PageFrame}>`;
}
