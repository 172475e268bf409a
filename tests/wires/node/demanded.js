// Objects that Vercel's `ai` demands of a model of Ollama, by calls and by a schema; prints them.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, Output, tool } from "ai";

const address = process.argv[2];
const provider = createOpenAICompatible({
  name: "mochi",
  baseURL: `${address}/v1`,
  supportsStructuredOutputs: true,
});
const inputSchema = jsonSchema({
  type: "object",
  properties: { name: { type: "string" }, people: { type: "integer" } },
  required: ["name", "people"],
});
const tools = {
  town: tool({ description: "A town.", inputSchema }),
  other: tool({ inputSchema: jsonSchema({ type: "object", properties: {} }) }),
};
const asks = (options) =>
  generateText({ model: provider("qwen3:14b"), prompt: "Which town?", maxRetries: 0, ...options });
const called = async (options) => {
  const [call] = (await asks(options)).toolCalls;
  return [call.toolName, call.input];
};

const report = {
  required: await called({ tools: { town: tools.town }, toolChoice: "required" }),
  named: await called({ tools, toolChoice: { type: "tool", toolName: "town" } }),
  formed: (await asks({ output: Output.object({ schema: inputSchema }) })).output,
};
console.log(JSON.stringify(report));
