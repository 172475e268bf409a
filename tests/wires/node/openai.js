// Conversations by `openai` and by Vercel's `ai` with @ai-sdk/openai-compatible; prints what came.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";

const [address, { asked, called, added, slow, pixel }] = [
  process.argv[2],
  JSON.parse(process.argv[3]),
];
const baseURL = `${address}/v1`;
const PARAMETERS = { type: "object", properties: { city: { type: "string" } } };
const TOWN = { type: "object", properties: { town: { type: "string" } }, required: ["town"] };
const ADD = { type: "mochi", names: ["add"] };
const model = "lorem";

async function openai() {
  const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  const chat = (content, options) =>
    client.chat.completions.stream({ model, messages: [{ role: "user", content }], ...options });
  const weather = { name: "weather", parameters: PARAMETERS, function: () => "22 degrees" };
  const runner = client.chat.completions.runTools({
    model,
    stream: true,
    messages: [{ role: "user", content: called }],
    tools: [{ type: "function", function: { ...weather, parse: JSON.parse } }],
  });
  const image = { type: "image_url", image_url: { url: pixel } };
  const response_format = { type: "json_schema", json_schema: { name: "town", schema: TOWN } };

  const question = await client.responses.create({ model, input: added, tools: [ADD] });
  const request = question.output.at(-1);
  const answer = { type: "mcp_approval_response", approval_request_id: request.id, approve: true };
  const decided = await client.responses
    .stream({ model, input: [answer], previous_response_id: question.id })
    .finalResponse();

  const options = { model, input: slow, background: true, stream: true };
  let response, last;
  for await (const event of await client.responses.create(options)) {
    response ??= event.response.id;
    last = event.sequence_number;
    if (event.type === "response.output_text.delta") break; // the connection is cut
  }
  let text;
  const rest = { stream: true, starting_after: last };
  for await (const event of await client.responses.retrieve(response, rest))
    text = event.response?.output_text ?? event.response?.output[0]?.content[0]?.text ?? text;

  return {
    streamed: await chat(asked).finalContent(),
    called: await runner.finalContent(),
    seen: await chat([{ type: "text", text: "What?" }, image]).finalContent(),
    formed: JSON.parse(await chat("Which town?", { response_format }).finalContent()),
    decided: decided.output.map((item) => item.type),
    resumed: text,
  };
}

async function ai() {
  const provider = createOpenAICompatible({
    name: "mochi",
    baseURL,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
  const lorem = provider(model);
  const execute = async () => "22 degrees";
  const weather = tool({ inputSchema: jsonSchema(PARAMETERS), execute });
  const streamed = streamText({ model: lorem, prompt: asked });
  const loop = { tools: { weather }, stopWhen: stepCountIs(3) };
  const image = { type: "file", mediaType: "image/png", data: pixel.split(",")[1] };
  const content = [{ type: "text", text: "What?" }, image];
  const output = Output.object({ schema: jsonSchema(TOWN) });
  return {
    streamed: await streamed.text,
    thought: await streamed.reasoningText,
    tokens: (await streamed.usage).outputTokens,
    called: await streamText({ model: lorem, prompt: called, ...loop }).text,
    seen: (await generateText({ model: lorem, messages: [{ role: "user", content }] })).text,
    formed: (await generateText({ model: lorem, prompt: "Which town?", output })).output,
  };
}

console.log(JSON.stringify({ openai: await openai(), ai: await ai() }));
