// A thread and the runner of tools of @anthropic-ai/sdk; prints what came.
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const [address, { asked, called, again }] = [process.argv[2], JSON.parse(process.argv[3])];
const client = new Anthropic({ baseURL: address, apiKey: "none", maxRetries: 0 });
const WEATHER = betaTool({
  name: "weather",
  description: "The weather of a city.",
  inputSchema: { type: "object", properties: { city: { type: "string" } } },
  run: ({ city }) => `22 degrees in ${city}`,
});
const common = { model: "lorem", max_tokens: 4000, tools: [WEATHER] };
const question = (content) => ({ role: "user", content });
const text = (message) => message.content.map((block) => block.text).join("");

async function runs(stream) {
  const messages = [question(called)];
  const message = await client.beta.messages.toolRunner({ ...common, messages, stream });
  return { id: message.id, text: text(message) };
}

async function remembers() {
  const thread = client.beta.messages.thread({ ...common, system: "Be kind." });
  const first = await thread.send(question(asked));
  thread.append(question(called));
  const ran = await thread.toolRunner();
  const last = await thread.stream(question(again)).finalMessage();
  return { ids: [first, ran, last].map(({ id }) => id), texts: [ran, last].map(text) };
}

console.log(
  JSON.stringify({
    runner: await runs(false),
    stream: await runs(true),
    thread: await remembers(),
  }),
);
