// A session, or the start of a new one.

import { html, useEffect, useLayoutEffect, useState, useValue } from "../library.js";
import { address, go } from "../router.js";
import { modelNamed, models, tools } from "../state/catalogue.js";
import { chat, createSession, live, open, reload, send, sending, stop, turnWindow } from "../state/chat.js";
import { attempt } from "../state/notices.js";
import { change } from "../state/sessions.js";
import { drafts, preference } from "../storage.js";
import { t } from "../texts.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { IconButton } from "./icons.js";
import { Pulls } from "./pulls.js";
import { SettingsPanel } from "./settings-panel.js";

/** The name of what drafts of a new chat are kept under. */
const NEW = "new";

function ModelChoice({ value, onChange }) {
  const { value: answer, loaded } = useValue(models.state);
  const groups = new Map();
  for (const model of answer.models) {
    const group = model.kind === "model" ? model.provider : t.kind[model.kind];
    groups.set(group, [...(groups.get(group) ?? []), model]);
  }
  const isListed = answer.models.some(({ name }) => name === value);
  return html`<select class="model-choice" aria-label=${t.model} value=${value ?? ""}
    onChange=${(event) => onChange(event.target.value)}>
    ${!isListed && html`<option value=${value ?? ""}>${value || (loaded ? t.noModel : t.loading)}</option>`}
    ${[...groups].map(([group, members]) => html`<optgroup key=${group} label=${group}>
      ${members.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}
    </optgroup>`)}
  </select>`;
}

const short = (count) => (count < 1000 ? `${count}` : `${(count / 1000).toFixed(1)}k`);

/** How full the context window is, and what of the conversation did not fit. */
function ContextMeter({ status, session }) {
  const turn = useValue(turnWindow);
  const last = session.messages.findLast(({ prompt_eval_count: count }) => count);
  const used = turn?.usage_tokens ?? (last ? last.prompt_eval_count + (last.eval_count ?? 0) : 0);
  const size = turn?.current_window ?? status.context_window.current_window;
  if (!size || !used) return null;
  const dropped = turn?.dropped_messages ?? 0;
  const label = t.contextUsed(used, size) + (dropped > 0 ? ` ${t.leftOut(dropped)}` : "");
  return html`<span class="context ${dropped > 0 ? "full" : ""}" role="img" aria-label=${label} title=${label}>
    <span class="context-bar"><span style=${{ inlineSize: `${Math.min(100, (used / size) * 100)}%` }}></span></span>
    <span class="context-text">${short(used)} / ${short(size)}${dropped > 0 ? ` · −${dropped}` : ""}</span>
  </span>`;
}

function PageHead({ model, onModel, children, openSidebar, settings }) {
  return html`<header class="page-head">
    <div class="narrow-only"><${IconButton} icon="menu" label=${t.showSidebar} onClick=${openSidebar}
      aria-controls="sidebar" /></div>
    <${ModelChoice} value=${model} onChange=${onModel} />
    <span class="grow"></span>
    ${children}
    <${IconButton} icon="gear" label=${t.chatSettings} aria-expanded=${`${settings.isOpen}`}
      onClick=${() => settings.setOpen(!settings.isOpen)} />
  </header>`;
}

function useSettingsPanel() {
  const [isOpen, setOpen] = useState(false);
  return { isOpen, setOpen };
}

export function SessionPage({ id, openSidebar }) {
  const current = useValue(chat);
  const now = useValue(live);
  const sent = useValue(sending);
  const settings = useSettingsPanel();
  useValue(models.state);
  useEffect(() => {
    open(id);
  }, [id]);
  if (!current || current.id !== id) return html`<main class="main" id="main" tabindex="-1"><h1 class="hidden">mochi</h1>
    <p class="hint center">${t.loading}</p></main>`;
  const { session, status } = current;
  const title = session.title || session.messages?.find(({ role }) => role === "user")?.content || t.newChat;
  const model = modelNamed(session.model);
  const save = (changes) => attempt(async () => {
    await change(id, changes);
    await reload();
  });
  return html`<main class="main" id="main" tabindex="-1">
    <h1 class="hidden">${title}</h1>
    <${PageHead} model=${session.model} onModel=${(name) => save({ model: name })}
      openSidebar=${openSidebar} settings=${settings}>
      <${ContextMeter} status=${status} session=${session} />
    </${PageHead}>
    <div class="columns">
      <div class="column">
        <${Conversation} key=${id} />
        <${Composer} session=${id} model=${model} onStop=${now || sent ? () => attempt(stop) : null}
          onSend=${(text, files) => attempt(() => send(id, text, files))} />
      </div>
      ${settings.isOpen && html`<${SettingsPanel} settings=${session} status=${status}
        close=${() => settings.setOpen(false)} save=${save} sessionId=${id} />`}
    </div>
  </main>`;
}

/** Return three things to try: those that use tools first, where the model and the tools can. */
function suggestionsFor(model, isBuiltIn, known) {
  const withTools = model.capabilities.includes("tools")
    ? t.suggestionsWithTools.filter(({ uses }) => uses.every((name) => name in known))
    : [];
  return [...withTools, ...(isBuiltIn ? t.suggestionsSmall : t.suggestions)].slice(0, 3);
}

function Greeting({ model, isLoaded, onTry }) {
  const { value: known, loaded: areToolsLoaded } = useValue(tools.state);
  useEffect(() => {
    tools.reload();
  }, []);
  if (isLoaded && !model) {
    return html`<div class="greeting"><h1>${t.noModelYet}</h1>
      <p>${t.howToGetModel} <a href=${address("models")}>${t.page.models}</a></p>
      <${Pulls} /></div>`;
  }
  const isBuiltIn = model?.provider === "local";
  const suggestions = model && areToolsLoaded ? suggestionsFor(model, isBuiltIn, known.tools) : [];
  return html`<div class="greeting">
    <h1>${t.greeting}</h1>
    ${isBuiltIn && html`<p class="hint">${t.aboutBuiltIn(model.capabilities.includes("tools"))}</p>`}
    <ul class="suggestions">
      ${suggestions.map(({ text, uses }) => html`<li key=${text}>
        <button type="button" onClick=${() => onTry(text, uses)}>${text}</button></li>`)}
    </ul>
  </div>`;
}

/** Return the settings of a new chat, with these tools beside the chosen ones. */
function withTools({ tool_settings: before, ...others }, uses) {
  if (uses.length === 0) return { ...others, tool_settings: before };
  return { ...others, tool_settings: { ...before, tools: [...new Set([...(before?.tools ?? []), ...uses])] } };
}

/** The model of a new chat: the one that was used last, else the first one. */
function usual(list) {
  const last = preference.read("model");
  return list.some(({ name }) => name === last) ? last : (list[0]?.name ?? null);
}

export function NewChatPage({ openSidebar }) {
  const { value, loaded } = useValue(models.state);
  const [chosen, setChosen] = useState(null);
  const [draft, setDraft] = useState({});
  const [isStarting, setStarting] = useState(false);
  const settings = useSettingsPanel();
  useLayoutEffect(() => { // before anybody can send
    open(null);
    models.need();
  }, []);
  const name = chosen ?? usual(value.models);
  const model = value.models.find((each) => each.name === name) ?? null;
  const start = async (text, files, uses = []) => {
    setStarting(true);
    const isStarted = await attempt(async () => {
      await models.need(); // whoever writes fast does not wait for the list
      const used = chosen ?? usual(models.state.peek().value.models);
      if (!used) throw new Error(t.noModelYet);
      preference.write("model", used);
      const id = await createSession({ model: used, ...withTools(draft, uses) });
      drafts.write(NEW, "");
      await open(id);
      try {
        await send(id, text, files);
      } catch (error) {
        drafts.write(id, text);
        throw error;
      } finally {
        go("chat", id);
      }
    });
    setStarting(false);
    return isStarted;
  };
  return html`<main class="main" id="main" tabindex="-1">
    <${PageHead} model=${name} onModel=${setChosen} openSidebar=${openSidebar} settings=${settings} />
    <div class="columns">
      <div class="column">
        <div class="scroller"><${Greeting} model=${model} isLoaded=${loaded} 
          onTry=${(text, uses) => start(text, [], uses)} /></div>
        <${Composer} session=${NEW} model=${model} onSend=${start} onStop=${null}
          disabled=${(loaded && !name) || isStarting} />
      </div>
      ${settings.isOpen && html`<${SettingsPanel} settings=${draft} status=${null} sessionId=${null}
        close=${() => settings.setOpen(false)}
        save=${async (changes) => setDraft((before) => ({ ...before, ...changes }))} />`}
    </div>
  </main>`;
}
