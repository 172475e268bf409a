// Builds an answer from the events of a run (docs/reference/events.md).

import { add, addText, change, isCall, makeNode } from "./nodes.js";

export function newRun(runId) {
  return {
    id: runId,
    answer: makeNode("answer"),
    agents: new Map(),
    dropped: 0,
    complete: null,
    error: null,
    startedAt: null,
    firstTextAt: null,
    lastTextAt: null,
  };
}

/** Return the node that a call or a text of this event belongs to: an agent's, or the answer. */
function placeOf(run, data) {
  return run.agents.get(data.agent_call_id) ?? run.answer;
}

function findCall(run, data, place = placeOf(run, data)) {
  const { children } = place;
  for (let index = children.length - 1; index >= 0; index -= 1) {
    const node = children[index];
    if (node.id === data.tool_call_id && isCall(node.kind)) {
      return node;
    }
  }
  return null;
}

function changeCall(run, data, values) {
  const node = findCall(run, data);
  if (node) change(node, values);
}

function addCall(run, data, state) {
  const place = placeOf(run, data);
  const known = findCall(run, data, place);
  if (known && !["done", "failed", "denied"].includes(known.state)) {
    change(known, { state, arguments: data.arguments });
    return known;
  }
  return add(place, makeNode("call", {
    name: data.tool_name,
    arguments: data.arguments,
    id: data.tool_call_id,
    recovered: data.recovered,
    state,
  }));
}

function ask(run, data) {
  const node = addCall(run, data, "asking");
  change(node, { confirmation: data, question: data.arguments });
}

function decide(run, data) {
  const node = findCall(run, data);
  if (!node) return;
  change(node, {
    state: data.approved ? "waiting" : "denied",
    arguments: data.arguments ?? node.arguments,
    edited: data.edited,
    decision: data,
    confirmation: null,
  });
}

function finish(run, data) {
  const node = findCall(run, data);
  if (!node) return;
  const isDenied = node.state === "denied" || data.code === "TOOL_EXECUTION_DENIED";
  change(node, {
    state: data.success ? "done" : isDenied ? "denied" : "failed",
    result: data.success ? data.result : data.error_message,
    code: data.code,
    attachments: data.attachments ?? [],
    progress: null,
    elicitation: null,
  });
}

function startAgent(run, data) {
  const place = run.agents.get(data.parent_call_id) ?? run.answer;
  const call = findCall(run, { tool_call_id: data.agent_call_id }, place);
  const values = {
    kind: "agent",
    id: data.agent_call_id,
    agent: data.agent_name,
    instruction: data.instruction,
    model: data.model,
    session: data.session_id,
    state: "running",
  };
  const node = call ?? add(place, makeNode("agent"));
  change(node, values);
  run.agents.set(data.agent_call_id, node);
}

function markText(run) {
  const now = performance.now();
  run.firstTextAt ??= now;
  run.lastTextAt = now;
}

const REDUCERS = new Map(Object.entries({
  run_start: (run, data) => Object.assign(run, { startedAt: data.started_at, model: data.model }),
  history_shortened: (run, data) => Object.assign(run, { dropped: data.dropped_messages }),
  content_delta: (run, data) => {
    markText(run);
    addText(run.answer, "text", data.content);
  },
  thinking_delta: (run, data) => {
    markText(run);
    addText(run.answer, "thinking", data.content);
  },
  reply_retry: (run, data) => {
    const { children } = run.answer;
    const reply = children.slice(children.findLastIndex(({ kind }) => isCall(kind)) + 1);
    for (const node of reply) {
      if (node.kind === "text") change(node, { kind: "rejected", problem: data.problem });
    }
  },
  tool_call: (run, data) => addCall(run, data, "running"),
  tool_call_waiting: (run, data) => changeCall(run, data, { state: "waiting" }),
  tool_call_confirmation_required: ask,
  tool_call_confirmation_decided: decide,
  tool_input_required: (run, data) => changeCall(run, data, { elicitation: data }),
  tool_input_received: (run, data) => changeCall(run, data, { elicitation: null }),
  tool_sampling: (run, data) => changeCall(run, data, { sampling: data }),
  tool_progress: (run, data) => changeCall(run, data, { progress: data }),
  tool_result: finish,
  agent_start: startAgent,
  agent_planning: (run, data) => addText(placeOf(run, data), "thinking", data.content),
  agent_execution: (run, data) => addText(placeOf(run, data), "text", data.content),
  agent_tool_call: (run, data) => addCall(run, data, "running"),
  agent_tool_result: finish,
  agent_complete: (run, data) => {
    const node = run.agents.get(data.agent_call_id);
    if (node) change(node, { state: data.success ? "done" : "failed", result: data.error_message });
  },
  message_complete: (run, data) => {
    run.complete = data;
    run.dropped = data.context_window?.dropped_messages ?? run.dropped;
  },
  error: (run, data) => Object.assign(run, { error: data }),
}));

/** Apply one event; unknown ones are ignored, as later servers may send more. */
export function apply(run, event, data) {
  REDUCERS.get(event)?.(run, data);
}

/** Return `{tokens, seconds}` of the answer; seconds is null when it was not seen from its start. */
export function speedOf(run) {
  const tokens = run.complete?.eval_count ?? null;
  const seconds = run.firstTextAt === null ? 0 : (run.lastTextAt - run.firstTextAt) / 1000;
  return { tokens, seconds: run.isReplay || seconds < 0.2 ? null : seconds };
}
