// Conversations by the chat of Vercel's `ai`, as its hooks have it; prints what came.
import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

const [address, { asked, called, both, twice, denied, failed }] = [
  process.argv[2],
  JSON.parse(process.argv[3]),
];
const WEATHER = {
  type: "function",
  name: "weather",
  description: "The weather of a city.",
  inputSchema: { type: "object", properties: { city: { type: "string" } } },
};
const ADD = { type: "mochi", names: ["add"] };

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => void this.messages.push(message);
  popMessage = () => void this.messages.pop();
  replaceMessage = (index, message) => void (this.messages[index] = message);
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {
  constructor(options) {
    super({ state: new State(), ...options });
  }
}

async function holds(text, { approved = true, ...body }) {
  let session = {};
  const asked = [];
  const chat = new Chat({
    transport: new DefaultChatTransport({
      api: `${address}/api/v1/ui/chat`,
      body: () => ({ model: "lorem", ...body, ...session }),
    }),
    sendAutomaticallyWhen: (state) =>
      lastAssistantMessageIsCompleteWithToolCalls(state) ||
      lastAssistantMessageIsCompleteWithApprovalResponses(state),
    onToolCall: ({ toolCall: { dynamic, toolName, toolCallId } }) => {
      if (!dynamic)
        chat.addToolOutput({ tool: toolName, toolCallId, output: { degrees: 22 } });
    },
    onFinish: ({ message }) => {
      const id = message.metadata?.mochi?.session_id;
      if (id) session = { session_id: id };
      for (const part of message.parts)
        if (part.state === "approval-requested") {
          asked.push(part.toolName);
          const answer = { id: part.approval.id, approved, reason: approved ? undefined : "No." };
          setImmediate(() => chat.addToolApprovalResponse(answer));
        }
    },
  });
  await chat.sendMessage({ text });
  const isWaiting = () =>
    chat.status !== "ready" ||
    chat.lastMessage.parts.some(({ state }) => state?.startsWith("approval-")) ||
    chat.lastMessage.parts.at(-1).type !== "text";
  while (!chat.error && isWaiting()) await new Promise((resolve) => setTimeout(resolve, 5));
  return {
    error: chat.error?.message,
    asked,
    metadata: chat.lastMessage.metadata,
    parts: chat.lastMessage.parts.map(({ type, text, state, toolName, input, output }) => ({
      type,
      text,
      state,
      toolName,
      input,
      output,
    })),
    messages: chat.messages.length,
  };
}

console.log(
  JSON.stringify({
    streams: await holds(asked, { think: true }),
    client: await holds(called, { tools: [WEATHER] }),
    session: await holds(both, { tools: [WEATHER, ADD], session_id: "new" }),
    twice: await holds(twice, { tools: [ADD] }),
    denied: await holds(denied, { tools: [ADD], approved: false }),
    failed: await holds(failed, {}),
  }),
);
