// The session that is open: its messages, its settings, and the run that goes on.

import { follow, get, part, post, put, remove, tokenIsMissing } from "../api.js";
import { apply, newRun, speedOf } from "../conversation/events.js";
import { itemsOf } from "../conversation/history.js";
import { batch, effect, signal } from "../library.js";
import { go } from "../router.js";
import { drafts, preference } from "../storage.js";
import { t } from "../texts.js";
import { fail } from "./notices.js";
import { modelNamed } from "./catalogue.js";
import { tell } from "./notifications.js";
import { activeRuns, refresh as refreshSessions, sessions } from "./sessions.js";

const DRAW_MILLISECONDS = 40;

/** Pause between two drawings of an answer, as a multiple of what the last one took. */
const PAUSE = 2;

/** Longest pause: a tab that nobody sees draws no frames, and would count as slow. */
const LONGEST_PAUSE = 500;

/** The open session, or null: `{id, number, session, items, variants, status}`; a later load has a higher number. */
export const chat = signal(null);

/** The run that is shown below the items, or null; `live.version` grows with each change. */
export const live = signal(null);

/** What a message that is being sent says, until the session has it. */
export const sending = signal(null);

/** Why the last turn failed or did not begin, `{error, again}`, or null; `again` is "send" or "answer". */
export const failure = signal(null);

/** Do what begins a turn; what goes wrong is shown in the conversation. Resolves to whether it went well. */
export async function attemptTurn(action, again) {
  failure.value = null;
  try {
    await action();
    return true;
  } catch (error) {
    failure.value = { error, again };
    return false;
  }
}

/** What the last turn of this session said of its context window. */
export const turnWindow = signal(null);

/** Speeds of answers that were seen from their start, by the id of their message. */
export const speeds = new Map();

let opened = null;
let reading = null;
const ended = new Set();
let loads = 0;

function draw(run, isNow = false) {
  const publish = () => {
    run.timer = null;
    if (reading !== run) return;
    const began = performance.now();
    live.value = { run, version: run.answer.version };
    // What follows the next frame comes after its layout and painting.
    requestAnimationFrame(() => setTimeout(() => {
      run.pause = Math.min(PAUSE * (performance.now() - began), LONGEST_PAUSE);
    }));
  };
  if (isNow) {
    clearTimeout(run.timer);
    publish();
  } else run.timer ??= setTimeout(publish, Math.max(DRAW_MILLISECONDS, run.pause ?? 0));
}

async function load(id) {
  loads += 1;
  const number = loads;
  const [session, variants, status] = await Promise.all([
    get(`sessions/${part(id)}`),
    get(`sessions/${part(id)}/variants`),
    get(`sessions/${part(id)}/status`),
  ]);
  return { id, number, session, items: itemsOf(session.messages), variants: variants.messages, status };
}

/** Show what was loaded, unless another session is open, or what is shown was asked for later. */
function replaceBy(loaded) {
  if (opened === loaded.id && loaded.number > (chat.peek()?.number ?? 0)) chat.value = loaded;
}

const show = async (id) => replaceBy(await load(id));

export const reload = () => (opened ? show(opened) : Promise.resolve());

/** Open a session; null closes the one that is open. */
export async function open(id) {
  if (id === opened) return;
  stopReading();
  opened = id;
  batch(() => {
    chat.value = null;
    sending.value = null;
    failure.value = null;
    turnWindow.value = null;
  });
  if (!id) return;
  try {
    await show(id);
    const run = await presentRun(id);
    if (run && opened === id && !reading) read(run.run_id);
  } catch (error) {
    if (opened !== id) return;
    if (error.status === 404) go("");
    fail(error);
  }
}

async function presentRun(id) {
  const { runs } = await get(`runs?session_id=${part(id)}`);
  return runs.find(({ state }) => state === "running" || state === "waiting") ?? null;
}

function stopReading() {
  reading?.abort.abort();
  reading = null;
  live.value = null;
}

/** Show what a run says, from its first event, until its end. */
async function read(runId, { isOwn = false } = {}) {
  stopReading();
  const id = opened;
  const run = Object.assign(newRun(runId), { abort: new AbortController(), isReplay: !isOwn });
  reading = run;
  draw(run, true);
  if (isOwn) showQuestion(id);
  try {
    for await (const { event, data } of follow(`runs/${part(runId)}/events`, {
      signal: run.abort.signal,
    })) {
      apply(run, event, data);
      draw(run, event !== "content_delta" && event !== "thinking_delta");
    }
  } catch (error) {
    fail(error);
  }
  if (reading !== run) return;
  ended.add(runId);
  if (run.error && run.error.code !== "RUN_STOPPED") {
    failure.value = { error: run.error, again: "answer" };
  }
  if (run.complete) {
    turnWindow.value = run.complete.context_window;
    speeds.set(run.complete.message_id, speedOf(run));
  }
  const loaded = await load(id).catch(fail);
  if (reading !== run) return;
  batch(() => {
    if (loaded) replaceBy(loaded);
    sending.value = null;
    stopReading();
  });
  refreshSessions();
  if (run.complete) tell(t.answerIsDone, loaded?.session.title ?? "", () => go("chat", id));
}

/** Show the question that a run answers, which the session has as soon as there is a run. */
async function showQuestion(id) {
  await show(id).catch(fail);
  if (opened === id) sending.value = null;
}

async function startRun(id, body) {
  const { run_id: runId } = await post(`chat/${part(id)}/runs`, body);
  if (opened === id) read(runId, { isOwn: true });
}

/** Return whether the model shall think, as the person has chosen it, where the model can. */
function thinking() {
  const model = modelNamed(chat.peek()?.session.model);
  const isOn = preference.read("think") === "on" && model?.capabilities.includes("thinking");
  return isOn ? { think: true } : {};
}

/** Send a message; resolves when its run has begun. */
export async function send(id, message, attachments = []) {
  sending.value = { message, attachments };
  try {
    await startRun(id, {
      message,
      ...thinking(),
      ...(attachments.length > 0 && { attachments: attachments.map(({ sent }) => sent) }),
    });
  } catch (error) {
    sending.value = null;
    throw error;
  }
}

export async function regenerate() {
  await startRun(opened, { keep: true, ...thinking() });
}

/** True while the model writes a summary of what is before the last question. */
export const compacting = signal(false);

/** Let the model read a summary in the place of what is before the last question. */
export async function compact() {
  compacting.value = true;
  try {
    await post(`sessions/${part(opened)}/compact`);
    await reload();
  } finally {
    compacting.value = false;
  }
}

export async function stop() {
  if (reading) await post(`runs/${part(reading.id)}/stop`);
}

/** Replace a question and answer it anew. If that is refused, all is as it was. */
export async function edit(index, content) {
  const id = opened;
  const { items } = chat.peek();
  const answer = items[items.findIndex(({ index: each }) => each === index) + 1];
  await put(`sessions/${part(id)}/messages/${index}`, { content });
  await show(id);
  try {
    await startRun(id, thinking());
  } catch (error) {
    if (answer?.last?.message_id) await selectVariant(answer.last.message_id).catch(fail);
    throw error;
  }
}

/** Go on in a copy of the session that ends with this message. */
export async function branch(messageId) {
  const copy = await post(`sessions/${part(opened)}/fork`, { message_id: messageId });
  refreshSessions();
  go("chat", copy.session_id);
  return copy.session_id;
}

/** Ask a changed question in a copy of the session. */
export async function branchEdited(message, index, content) {
  const id = await branch(message.message_id);
  await put(`sessions/${part(id)}/messages/${index}`, { content });
  await open(id);
  await show(id);
  await startRun(id, thinking());
}

export async function selectVariant(messageId) {
  await post(`sessions/${part(opened)}/variants/${part(messageId)}/select`);
  await reload();
}

export async function createSession(settings) {
  const created = await post("sessions", settings);
  drafts.write(created.session_id, "");
  return created.session_id;
}

/** Delete a new session whose first message was refused; return whether there is none any more. */
export async function dropSession(id) {
  try {
    await remove(`sessions/${part(id)}`);
  } catch {
    return false;
  }
  await open(null);
  refreshSessions();
  return true;
}

// It is opened anew once there is a token.
effect(() => {
  if (tokenIsMissing.value) open(null);
});

// Another tab or program may start a run of the open session, or change it.
effect(() => {
  const id = opened;
  const run = activeRuns.value[id];
  const isIdle = !reading && !sending.peek() && chat.peek();
  if (run && isIdle && !ended.has(run.run_id)) {
    show(id).then(() => opened !== id || reading || read(run.run_id)).catch(fail);
  }
});

effect(() => {
  const entry = sessions.value.find(({ session_id: id }) => id === opened);
  const open_ = chat.peek();
  const isIdle = !reading && !sending.peek();
  if (entry && open_ && isIdle && entry.updated_at > open_.session.updated_at) reload().catch(fail);
});
