// Conversations by @ag-ui/client, whose verifier checks the order of all events; prints what came.
import { buildResumeArray, HttpAgent } from "@ag-ui/client";

const [address, { asked, called, summed, failed }] = [
  process.argv[2],
  JSON.parse(process.argv[3]),
];
const WEATHER = {
  name: "weather",
  description: "The weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string" } } },
};

function agentOf(content, forwardedProps) {
  const agent = new HttpAgent({
    url: `${address}/api/v1/agui`,
    initialMessages: [{ id: "question", role: "user", content }],
  });
  const events = [];
  let outcome = null;
  const subscriber = {
    onEvent: ({ event }) => void events.push(event.type),
    onRunFinishedEvent: ({ event }) => void (outcome = event.outcome),
  };
  const run = async (more = {}) => {
    events.length = 0;
    const { result } = await agent.runAgent(
      { forwardedProps: { model: "lorem", ...forwardedProps }, ...more },
      subscriber,
    );
    return { result, events: [...events], outcome };
  };
  const shown = () =>
    agent.messages.map(({ role, content, toolCalls }) => ({
      role,
      content,
      calls: toolCalls?.map(({ function: { name, arguments: text } }) => [name, text]),
    }));
  return { agent, run, shown };
}

async function streams() {
  const { run, shown } = agentOf(asked, { think: true });
  return { ...(await run()), messages: shown() };
}

async function callsAFunctionOfTheClient(props) {
  const { agent, run, shown } = agentOf(called, props);
  const { outcome, result } = await run({ tools: [WEATHER] });
  const [{ id: toolCallId }] = agent.messages.at(-1).toolCalls;
  agent.addMessage({ id: "result", role: "tool", toolCallId, content: "22 degrees" });
  const session = result.session_id && { session_id: result.session_id };
  await run({ tools: [WEATHER], forwardedProps: { model: "lorem", ...props, ...session } });
  return { outcome, messages: shown().slice(1) };
}

async function isAsked(answer, props) {
  const { agent, run, shown } = agentOf(summed, { tools: ["add"], ...props });
  const reasons = [];
  await run();
  while (agent.pendingInterrupts.length) {
    const answers = agent.pendingInterrupts.map(({ id, reason }) => {
      reasons.push(reason);
      return [id, answer];
    });
    const resume = buildResumeArray(agent.pendingInterrupts, Object.fromEntries(answers));
    await run({ resume });
  }
  return { reasons, messages: shown().slice(1) };
}

async function fails() {
  const { agent } = agentOf(failed);
  let error = null;
  const onRunErrorEvent = ({ event: { message, code } }) => void (error = { message, code });
  await agent.runAgent({ forwardedProps: { model: "lorem" } }, { onRunErrorEvent });
  return error;
}

async function isRefused() {
  try {
    await agentOf(asked, { session_id: "0123456789" }).run();
  } catch (error) {
    return error.status;
  }
}

console.log(
  JSON.stringify({
    streams: await streams(),
    client: await callsAFunctionOfTheClient({}),
    session: await callsAFunctionOfTheClient({ session_id: "new" }),
    edited: await isAsked({
      status: "resolved",
      payload: { approved: true, editedArgs: { a: 20, b: 3 } },
    }),
    denied: await isAsked(
      { status: "resolved", payload: { approved: false, reason: "No." } },
      { session_id: "new" },
    ),
    cancelled: await isAsked({ status: "cancelled" }),
    failed: await fails(),
    refused: await isRefused(),
  }),
);
