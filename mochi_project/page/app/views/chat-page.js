// A session, or the start of a new one.

import { html, useEffect, useLayoutEffect, useRef, useState, useValue } from "../library.js";
import { go } from "../router.js";
import { isMissing, modelNamed, models, usualModel } from "../state/catalogue.js";
import { chatOf } from "../state/chat.js";
import { attempt } from "../state/notices.js";
import { open, openChat } from "../state/open-chat.js";
import { fetched } from "../state/pulls.js";
import { change, createSession, sessions, titleOf } from "../state/sessions.js";
import { drafts, preference } from "../storage.js";
import { t } from "../texts.js";
import { useChatSettings } from "./chat-settings.js";
import { Composer, giveBack, takeDraft } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Failure } from "./failure.js";
import { Greeting } from "./greeting.js";
import { IconButton } from "./icons.js";
import { Menu } from "./menu.js";
import { askModel, ModelPicker } from "./model-picker.js";
import { NarrowButtons } from "./page-frame.js";
import { sessionActions } from "./sidebar.js";

/** The name of what drafts of a new chat are kept under. */
const NEW = "new";

const short = (count) => (count < 1000 ? `${count}` : `${(count / 1000).toFixed(1)}k`);

/** How full the context window is, and what of the conversation did not fit. */
function ContextMeter({ chat, status, session }) {
  const turn = useValue(chat.turnWindow);
  const last = session.messages.findLast(({ prompt_eval_count: count }) => count);
  const used = turn?.usage_tokens ?? (last ? last.prompt_eval_count + (last.eval_count ?? 0) : 0);
  const size = turn?.current_window ?? status.context_window.current_window;
  if (!size || !used) return null;
  const dropped = turn?.dropped_messages ?? 0;
  const summarised = turn?.summarised_messages ?? 0;
  const ofTools = turn?.tool_tokens ?? status.tool_tokens;
  const label = [
    t.contextUsed(used, size),
    ...(ofTools > 0 ? [t.toolsTake(ofTools)] : []),
    ...(summarised > 0 ? [t.summarised(summarised)] : []),
    ...(dropped > 0 ? [t.leftOut(dropped)] : []),
  ].join(" ");
  return html`<span class="context ${dropped > 0 ? "full" : ""}" role="img" aria-label=${label} title=${label}>
    <span class="context-bar"><span style=${{ inlineSize: `${Math.min(100, (used / size) * 100)}%` }}></span></span>
    <span class="context-text">${short(used)} / ${short(size)}${dropped > 0 ? ` · −${dropped}` : ""}</span>
  </span>`;
}

/** Compacts the history, once something is before the last question. */
function CompactButton({ chat, session, isBusy }) {
  const isCompacting = useValue(chat.isCompacting);
  if (session.messages.filter(({ role }) => role === "user").length < 2) return null;
  return html`<${IconButton} icon="compact" label=${isCompacting ? t.isCompacting : t.compact}
    aria-disabled=${isBusy || isCompacting} aria-busy=${`${isCompacting}`} onClick=${() => attempt(() => chat.compact())} />`;
}

/** `title` is drawn for a stored chat. */
function PageHead({ model, onModel, title = null, children, openSidebar, settings }) {
  return html`<header class="page-head">
    <${NarrowButtons} openSidebar=${openSidebar} />
    <${ModelPicker} value=${model} onChange=${onModel} />
    ${title === null ? html`<span class="grow"></span>` : title}
    ${children}
    <${IconButton} icon="gear" label=${t.chatSettings} id="chat-settings" aria-expanded=${`${settings.Panel !== null}`}
      onClick=${settings.Panel ? settings.close : settings.open} />
  </header>`;
}

function Title({ session }) {
  const title = titleOf(session, useValue(sessions));
  return html`<h1 class="chat-title" dir="auto" title=${title}>${title}</h1>`;
}

function ChatMenu({ session, save }) {
  const named = { ...session, preview: titleOf(session, useValue(sessions)) };
  return html`<${Menu} label=${t.actionsOfChat} items=${sessionActions(named, save)} />`;
}

const loadPanel = () => import("./settings-panel.js").catch(() => { throw new Error(t.serverUnreachable); });

/** Return `{Panel, open, close}`: the panel is loaded after the first drawing, and null while it is closed. */
function useSettingsPanel() {
  const [Panel, setPanel] = useState(null);
  useEffect(() => {
    loadPanel().catch(() => {}); // opening it tries again
  }, []);
  const open = () => attempt(async () => {
    const { SettingsPanel } = await loadPanel();
    setPanel(() => SettingsPanel);
  });
  const close = () => {
    setPanel(null);
    document.getElementById("chat-settings").focus();
  };
  return { Panel, open, close };
}

export function SessionPage({ id, openSidebar }) {
  const chat = useValue(openChat);
  const loaded = useValue(chat.loaded);
  useLayoutEffect(() => { // before the frame: it waits for the server
    open(chatOf(id));
  }, [id]);
  if (!loaded || chat.id !== id) return html`<main class="main" id="main" tabindex="-1"><h1 class="hidden">mochi</h1>
    <p class="hint center">${t.loading}</p></main>`;
  return html`<${OpenSession} key=${id} chat=${chat} openSidebar=${openSidebar} />`;
}

function OpenSession({ chat, openSidebar }) {
  const { id } = chat;
  const { session, status } = useValue(chat.loaded);
  const now = useValue(chat.live);
  const sent = useValue(chat.sending);
  const panel = useSettingsPanel();
  useValue(models.state);
  const model = modelNamed(session.model);
  const save = (changes) => attempt(() => chat.change(() => change(id, changes)));
  const withModel = (name) => save({ model: name });
  const kept = useChatSettings(session, status.execution_policy, save);
  const onSend = async (text, files) => {
    if (isMissing(session.model)) await models.reload(); // it may have come meanwhile
    if (isMissing(session.model)) {
      if (!chat.isOpen) return false; // nobody asks of a chat that one has left
      const name = await askModel();
      if (!name || !(await withModel(name))) return false;
    }
    return chat.attemptTurn(() => chat.send(text, files), "send");
  };
  return html`<main class="main" id="main" tabindex="-1">
    <${PageHead} model=${session.model} onModel=${withModel} title=${html`<${Title} session=${session} />`}
      openSidebar=${openSidebar} settings=${panel}>
      <${ContextMeter} chat=${chat} status=${status} session=${session} />
      <${CompactButton} chat=${chat} session=${session} isBusy=${Boolean(now || sent)} />
      <${ChatMenu} session=${session} save=${save} />
    </${PageHead}>
    <div class="columns">
      <div class="column">
        <${Conversation} key=${id} chat=${chat} withModel=${withModel} withoutTools=${() => save(WITHOUT_TOOLS)} />
        <${Composer} session=${id} model=${model} kept=${kept} onStop=${now || sent ? () => attempt(() => chat.stop()) : null}
          onSend=${onSend} />
      </div>
      ${panel.Panel && html`<${panel.Panel} chat=${chat} settings=${session} status=${status}
        close=${panel.close} kept=${kept} />`}
    </div>
  </main>`;
}

const WITHOUT_TOOLS = { tool_settings: { tools: [] }, agent_settings: { enabled_agents: [] } };

/** Return the settings of a new chat, with these tools beside the chosen ones. */
function withTools({ tool_settings: before, ...others }, uses) {
  if (uses.length === 0) return { ...others, tool_settings: before };
  return { ...others, tool_settings: { ...before, tools: [...new Set([...(before?.tools ?? []), ...uses])] } };
}

export function NewChatPage({ openSidebar }) {
  const { value, loaded, error } = useValue(models.state);
  const [chosen, setChosen] = useState(null);
  const [draft, setDraft] = useState({});
  const [isStarting, setStarting] = useState(false);
  const shown = useRef({ name: null });
  const panel = useSettingsPanel();
  const kept = useChatSettings(draft, null, async (changes) => setDraft((before) => ({ ...before, ...changes })));
  const newChat = chatOf(null);
  const isShown = useRef(true);
  const meanwhile = useRef(null); // what is written while a chat is being started; null: none is
  useLayoutEffect(() => { // before anybody can send
    open(newChat);
    models.need();
    return () => {
      isShown.current = false;
      if (meanwhile.current) meanwhile.current = [takeDraft(NEW)];
    };
  }, []);
  const last = useValue(fetched);
  // It stays where the list is loaded again, but for one that has been fetched.
  if (!shown.current.name || shown.current.last !== last) shown.current = { last, name: usualModel(value.models) };
  const name = chosen ?? shown.current.name;
  const model = value.models.find((each) => each.name === name) ?? null;
  const start = async (text, files, uses = []) => {
    setStarting(true);
    meanwhile.current = [];
    const isStarted = await newChat.attemptTurn(async () => {
      await models.need(); // whoever writes fast does not wait for the list
      const used = name ?? usualModel(models.state.peek().value.models);
      if (!used) throw new Error(t.noModelYet);
      preference.write("model", used);
      const chat = chatOf(await createSession({ model: used, ...withTools(draft, uses) }));
      if (isShown.current) await open(chat);
      const isTaken = await chat.attemptTurn(() => chat.send(text, files), "send");
      if (!isTaken) {
        const { error } = chat.failure.peek();
        // Without an answer nobody knows whether the message was taken.
        if (error.status && (await chat.drop())) {
          if (isShown.current) open(newChat);
          throw error;
        }
      }
      const [since = takeDraft(NEW)] = meanwhile.current ?? [];
      meanwhile.current = null;
      giveBack(chat.id, since.text, since.files);
      if (!isTaken) giveBack(chat.id, text, files);
      if (isShown.current) go("chat", chat.id);
    }, "send");
    for (const since of meanwhile.current ?? []) giveBack(NEW, since.text, since.files);
    meanwhile.current = null;
    setStarting(false);
    return isStarted;
  };
  const suggest = async (text, uses) => {
    if (meanwhile.current) return; // another message begins
    const { files } = drafts.read(NEW) === text ? takeDraft(NEW) : { files: [] }; // it was refused before
    if (!(await start(text, files, uses))) giveBack(NEW, text, files);
  };
  return html`<main class="main" id="main" tabindex="-1">
    <${PageHead} model=${name} onModel=${setChosen} openSidebar=${openSidebar} settings=${panel} />
    <div class="columns">
      <div class="column">
        <div class="scroller"><${Greeting} model=${model}
          onTry=${suggest} />
          <div class="messages"><${Failure} chat=${newChat} model=${name}
            withModel=${async (other) => { setChosen(other); return true; }}
            withoutTools=${async () => { setDraft((before) => ({ ...before, ...WITHOUT_TOOLS })); return true; }}
            /></div></div>
        <${Composer} session=${NEW} model=${model} kept=${kept} onSend=${start} onStop=${null}
          isOff=${((loaded || error) && value.models.length === 0) || isStarting} />
      </div>
      ${panel.Panel && html`<${panel.Panel} chat=${newChat} settings=${draft} status=${null}
        close=${panel.close} kept=${kept} />`}
    </div>
  </main>`;
}
