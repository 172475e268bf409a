// What is shown of the messages of a session: questions, and answers with their parts.

import { parse } from "../json.js";
import { add, makeNode } from "./nodes.js";

const EDITED = /^\(The user changed the arguments of this call to (.*)\.\)\n/;

/** What a model is told of a call that a person, a rule or nobody has allowed. */
const DENIED = /^Error:\s*(?:the user denied this call|a rule of this server denies this call|nobody confirmed the call)/;

/** Names the session of an agent in the result of its call. */
const AGENT_SESSION = /\bSession ID: ([\w-]+)/;

function addReply(answer, message, calls) {
  if (message.thinking) add(answer, makeNode("thinking", { text: message.thinking }));
  if (message.content) add(answer, makeNode("text", { text: message.content }));
  for (const call of message.tool_calls ?? []) {
    const node = makeNode("call", {
      name: call.function?.name ?? "",
      arguments: call.function?.arguments ?? {},
      id: call.id ?? null,
      recovered: call.recovered,
      state: "unknown",
    });
    add(answer, node);
    calls.push(node);
  }
}

/** Return the arguments that a person has given a call in the place of those of the model, or null. */
function changedArguments(result) {
  try {
    return parse(EDITED.exec(result)[1]);
  } catch {
    return null; // it says none, or is cut off
  }
}

function addResult(message, calls) {
  const isAnswered = (node) => node.state !== "unknown";
  const node =
    calls.find((each) => !isAnswered(each) && each.id && each.id === message.tool_call_id) ??
    calls.find((each) => !isAnswered(each));
  if (!node) return;
  const result = message.content ?? "";
  const failed = result.startsWith("Error:");
  const changed = changedArguments(result);
  Object.assign(node, {
    state: DENIED.test(result) ? "denied" : failed ? "failed" : "done",
    result: failed ? result.replace(/^Error:\s*/, "") : result,
    edited: changed !== null,
    arguments: changed ?? node.arguments,
    attachments: message.attachments ?? [],
  });
  const session = node.name === "agent" && AGENT_SESSION.exec(result)?.[1];
  if (!session) return;
  const { agent, instruction } = node.arguments;
  Object.assign(node, {
    kind: "agent",
    agent: String(agent ?? node.name), // a call that has named none
    instruction: String(instruction ?? ""),
    session,
    isStored: true,
  });
}

/** Return the node with what an agent has done after an instruction, of the messages of its session. */
export function workOf(messages, instruction) {
  const items = itemsOf(messages);
  const asked = items.findLast(({ kind, message }) => kind === "question" && message.content === instruction);
  const work = items.findLast(({ kind, question }) => kind === "answer" && (!asked || question === asked.key));
  const answer = work?.answer ?? makeNode("answer");
  const plan = answer.children.find(({ kind }) => kind === "text");
  if (plan) plan.kind = "thinking"; // as while it was written
  return answer;
}

/** Return the key of the answer to the question with this key. */
export function answerKey(question) {
  return `answer to ${question}`;
}

/**
 * Return items `{kind: "question", key, message, index}` and
 * `{kind: "answer", key, question, answer, last}`: the key of what it answers, its parts, and its
 * last message. An index counts the `notLoaded` messages before these, too.
 */
export function itemsOf(messages, notLoaded = 0) {
  const items = [];
  let current = null;
  let question = "none";
  let calls = [];
  messages.forEach((message, position) => {
    const index = notLoaded + position;
    const key = message.message_id ?? `at ${index}`;
    if (message.role === "user") {
      items.push({ kind: "question", key, message, index });
      question = key;
      current = null;
      return;
    }
    if (message.role === "system") return;
    if (!current) {
      current = { kind: "answer", key: answerKey(question), question, answer: makeNode("answer"), last: message };
      calls = [];
      items.push(current);
    }
    if (message.role === "assistant") {
      addReply(current.answer, message, calls);
      current.last = message;
    } else if (message.role === "tool") addResult(message, calls);
  });
  return items;
}

/** Return the items up to the last question, which the present run answers. */
export function withoutLastAnswer(items) {
  const last = items.findLastIndex(({ kind }) => kind === "question");
  return items.slice(0, last + 1);
}
