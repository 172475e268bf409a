// A conversation by the types of the OpenAPI document; prints what the test wants to know.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type Schemas = components["schemas"];
type ChatEvent = Schemas["ChatEvent"];

const [baseUrl = "", token = ""] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

function given<T>({ data, error }: { data?: T; error?: unknown }): T {
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<ChatEvent> {
  const decoder = new TextDecoder();
  let buffer = "";
  for await (const part of body as unknown as AsyncIterable<Uint8Array>) {
    const frames = (buffer + decoder.decode(part, { stream: true })).split("\n\n");
    buffer = frames.pop() ?? "";
    for (const frame of frames) {
      const event = /^event: (.*)$/m.exec(frame)?.[1];
      const data = /^data: (.*)$/m.exec(frame)?.[1];
      if (event && data) yield { event, data: JSON.parse(data) } as ChatEvent;
    }
  }
}

const created = given(
  await api.POST("/api/v1/sessions", {
    body: { model: "qwen3:14b", pinned: true, tool_settings: { tools: ["add"] } },
  }),
);
const path = { session_id: created.session_id };
// Only what is named changes: no key is needed, and none is sent unasked.
given(await api.PATCH("/api/v1/sessions/{session_id}", { params: { path }, body: { title: "Sums" } }));

const upload = given(
  await api.POST("/api/v1/sessions/{session_id}/attachments", {
    params: { path },
    body: { data: "QQ==", name: "a.txt" },
  }),
);

const stream = given(
  await api.POST("/api/v1/chat/{session_id}/stream", {
    params: { path },
    body: { message: "What is 2 + 3?" },
    parseAs: "stream",
  }),
);
let streamed = "";
const results: (string | null)[] = [];
let tokens: number | null = null;
for await (const one of eventsOf(stream as unknown as ReadableStream<Uint8Array>)) {
  switch (one.event) {
    case "content_delta":
      streamed += one.data.content;
      break;
    case "tool_call_confirmation_required": {
      const { confirmation_id } = one.data;
      given(
        await api.POST("/api/v1/chat/{session_id}/confirm-tool", {
          params: { path },
          body: { confirmation_id, approved: true },
        }),
      );
      break;
    }
    case "tool_result":
      results.push(one.data.result);
      break;
    case "message_complete":
      tokens = one.data.eval_count;
      break;
    case "error":
      throw new Error(one.data.message);
  }
}

const reply = given(
  await api.POST("/api/v1/chat/{session_id}", { params: { path }, body: { message: "Thanks." } }),
);
const refused = await api.POST("/api/v1/chat/{session_id}", {
  params: { path: { session_id: "nobody" } },
  body: { message: "Hello?" },
});
const session = given(await api.GET("/api/v1/sessions/{session_id}", { params: { path } }));
const isKnown = (message: { role: string }): message is Schemas["Message"] =>
  ["user", "system", "assistant", "tool"].includes(message.role);
const called = session.messages
  .filter(isKnown)
  .flatMap((message) => (message.role === "assistant" ? (message.tool_calls ?? []) : []))
  .map((call) => call.function.name);

console.log(
  JSON.stringify({
    streamed,
    results,
    tokens,
    reply: reply.message.content,
    dropped: reply.context_window.dropped_messages,
    refused: refused.error?.error.code,
    title: session.title,
    uploaded: upload.name,
    pinned: session.pinned,
    policy: session.tool_settings?.execution_policy,
    roles: session.messages.map((message) => message.role),
    called,
  }),
);
