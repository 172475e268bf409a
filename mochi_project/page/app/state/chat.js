// A session as the page shows it: its messages, its settings, and the run that goes on.
//
// What is begun in a chat changes that chat, whichever is open when it ends.

import { connectionLost, get, part, post, put, query, remove } from "../api.js";
import { newRun, speedOf } from "../conversation/events.js";
import { itemsOf } from "../conversation/history.js";
import { batch, signal } from "../library.js";
import { go } from "../router.js";
import { drafts, preference } from "../storage.js";
import { t } from "../texts.js";
import { fail } from "./notices.js";
import { modelNamed } from "./catalogue.js";
import { tell } from "./notifications.js";
import { makeOrder } from "./order.js";
import { readRun } from "./reading.js";
import { createSession, refresh as refreshSessions } from "./sessions.js";

/** Speeds of answers that were seen from their start, by the id of their message. */
export const speeds = new Map();

const FIRST_TURNS = 20;

class Chat {
  /** What the session has, or null: `{session, notLoaded, items, variants, status}`: `notLoaded` is a number of messages. */
  loaded = signal(null);

  /** The run that is shown below the items, or null; `live.version` grows with each change. */
  live = signal(null);

  /** What a message that is being sent says, until the session has it. */
  sending = signal(null);

  /** Why the last turn failed or did not begin, `{error, again}`, or null; `again` is "send" or "answer". */
  failure = signal(null);

  /** What the last turn said of its context window. */
  turnWindow = signal(null);

  /** True while the model writes a summary of what is before the last question. */
  isCompacting = signal(false);

  isOpen = false;

  /** Changes of the settings, and what depends on them, go one after another. */
  order = makeOrder();

  #reading = null;
  #ended = new Set();
  #isStopped = false;
  #loads = 0;
  #opens = 0;
  #shown = 0;
  #turns = FIRST_TURNS;

  /** `id` is that of a session; null: of a new one. */
  constructor(id) {
    this.id = id;
    this.path = `sessions/${part(id)}`;
  }

  /** Load what the session has, unless what is shown was asked for later. */
  async show() {
    this.#loads += 1;
    const number = this.#loads;
    const [session, variants, status] = await Promise.all([
      get(`${this.path}${query({ turns: this.#turns })}`), get(`${this.path}/variants`), get(`${this.path}/status`),
    ]);
    if (number < this.#shown) return;
    this.#shown = number;
    const notLoaded = session.message_count - session.messages.length;
    const items = itemsOf(session.messages, notLoaded);
    this.loaded.value = { session, notLoaded, items, variants: variants.messages, status };
  }

  /** Load all messages. */
  async showAll() {
    this.#turns = null;
    await this.show().catch(fail);
  }

  /** Show it, and the run that goes on; resolves to why that is not possible, or null. */
  async open() {
    this.isOpen = true;
    if (!this.id) return null;
    this.#opens += 1;
    const number = this.#opens;
    try {
      if (!this.loaded.peek() || !this.sending.peek()) await this.show(); // else its run will show it
      const { runs } = await get(`runs?session_id=${part(this.id)}`);
      const run = runs.find(({ state }) => state === "running" || state === "waiting");
      if (run) await this.update(run); // it may have begun since, with a question
      return null;
    } catch (error) {
      if (!this.isOpen || number < this.#opens) return error;
      const isWritten = this.loaded.peek() && drafts.read(this.id); // it stays in the box
      if (error.status === 404 && !isWritten) go("");
      if (error.status === 0) connectionLost.value = true; // when there is one again, it is opened again
      else fail(error);
      return error;
    }
  }

  leave() {
    this.isOpen = false;
    this.#turns = FIRST_TURNS;
    batch(() => {
      this.#stopReading();
      this.loaded.value = null;
      this.failure.value = null;
      this.turnWindow.value = null;
    });
  }

  /** Show what others have done: `run` is theirs, or undefined; the session has changed at `changedAt`. */
  async update(run, changedAt) {
    const { session } = this.loaded.peek() ?? {};
    if (!session || this.#reading || this.sending.peek()) return;
    const isNew = run && !this.#ended.has(run.run_id);
    if (!isNew && !(changedAt > session.updated_at)) return;
    await this.show();
    if (isNew && this.isOpen && !this.#reading) this.#read(run.run_id);
  }

  /** Do what changes the settings, and show them. */
  change(action) {
    return this.order.change(async () => {
      await action();
      await this.show();
    });
  }

  #stopReading() {
    this.#reading?.abort.abort();
    this.#reading = null;
    this.live.value = null;
  }

  /** Show what a run says, from its first event, until its end. */
  async #read(runId, { isOwn = false } = {}) {
    this.#stopReading();
    const run = Object.assign(newRun(runId), { abort: new AbortController(), isReplay: !isOwn });
    this.#reading = run;
    if (isOwn) this.#showQuestion();
    await readRun(run, () => {
      if (this.#reading === run) this.live.value = { run, version: run.answer.version };
    }).catch(fail);
    if (this.#reading === run) await this.#end(run);
  }

  async #end(run) {
    this.#ended.add(run.id);
    if (run.error && run.error.code !== "RUN_STOPPED") this.failure.value = { error: run.error, again: "answer" };
    if (run.complete) {
      this.turnWindow.value = run.complete.context_window;
      speeds.set(run.complete.message_id, speedOf(run));
    }
    await this.show().catch(fail);
    if (this.#reading !== run) return;
    batch(() => {
      this.sending.value = null;
      this.#stopReading();
    });
    refreshSessions();
    const title = this.loaded.peek()?.session.title ?? "";
    if (run.complete) tell(t.answerIsDone, title, () => go("chat", this.id));
  }

  /** Show the question that a run answers, which the session has as soon as there is a run. */
  async #showQuestion() {
    await this.show().catch(fail);
    this.sending.value = null;
  }

  /** Return whether the model shall think, as the person has chosen it, where the model can. */
  #thinking() {
    const model = modelNamed(this.loaded.peek()?.session.model);
    const isOn = preference.read("think") === "on" && model?.capabilities.includes("thinking");
    return isOn ? { think: true } : {};
  }

  async #startRun(body = {}) {
    this.#isStopped = false;
    const { run_id: runId } = await this.order.use(() =>
      post(`chat/${part(this.id)}/runs`, { ...body, ...this.#thinking() }));
    if (this.#isStopped) post(`runs/${part(runId)}/stop`).catch(fail);
    if (this.isOpen) this.#read(runId, { isOwn: true });
    else this.sending.value = null;
  }

  /** Do what begins a turn; what goes wrong is shown in the conversation. Resolves to whether it went well. */
  async attemptTurn(action, again) {
    this.failure.value = null;
    try {
      await action();
      return true;
    } catch (error) {
      this.failure.value = { error, again };
      return false;
    }
  }

  /** Send a message; resolves when its run has begun. */
  async send(message, attachments = []) {
    this.sending.value = { message, attachments };
    try {
      await this.#startRun({
        message,
        ...(attachments.length > 0 && { attachments: attachments.map(({ sent }) => sent) }),
      });
    } catch (error) {
      this.sending.value = null;
      throw error;
    }
  }

  regenerate() {
    return this.#startRun({ keep: true });
  }

  /** Stop the run; one that has not begun yet, as soon as it begins. */
  async stop() {
    this.#isStopped = true;
    if (this.#reading) await post(`runs/${part(this.#reading.id)}/stop`);
  }

  /** Let the model read a summary in the place of what is before the last question. */
  async compact() {
    this.isCompacting.value = true;
    try {
      await this.order.use(() => {}); // what is changed meanwhile does not wait for the model
      await post(`${this.path}/compact`);
      await this.show();
    } finally {
      this.isCompacting.value = false;
    }
  }

  /** Replace a question and answer it anew. If that is refused, all is as it was. */
  async edit(index, content) {
    const { items } = this.loaded.peek();
    const answer = items[items.findIndex(({ index: each }) => each === index) + 1];
    await put(`${this.path}/messages/${index}`, { content });
    await this.show();
    try {
      await this.#startRun();
    } catch (error) {
      if (answer?.last?.message_id) await this.selectVariant(answer.last.message_id).catch(fail);
      throw error;
    }
  }

  /** Make a copy of the session that ends with this message, and return its id. */
  async #copy(messageId) {
    const copy = () => createSession({ message_id: messageId }, `${this.path}/fork`);
    const id = await this.order.use(copy);
    refreshSessions();
    return id;
  }

  /** Go on in a copy of the session that ends with this message. */
  async branch(messageId) {
    const id = await this.#copy(messageId);
    if (this.isOpen) go("chat", id);
  }

  /** Ask a changed question in a copy of the session. */
  async branchEdited(message, index, content) {
    const copy = chatOf(await this.#copy(message.message_id));
    await put(`${copy.path}/messages/${index}`, { content });
    await copy.show();
    if (this.isOpen) go("chat", copy.id);
    await copy.attemptTurn(() => copy.#startRun(), "answer");
  }

  async selectVariant(messageId) {
    await post(`${this.path}/variants/${part(messageId)}/select`);
    await this.show();
  }

  /** Delete the session; return whether there is none any more. */
  async drop() {
    try {
      await remove(this.path);
    } catch {
      return false;
    }
    refreshSessions();
    return true;
  }
}

const chats = new Map();

/** Return the chat of a session, or of a new one for null: the same one each time. */
export function chatOf(id) {
  if (!chats.has(id)) chats.set(id, new Chat(id));
  return chats.get(id);
}
