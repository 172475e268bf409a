// Conversations by CopilotKit, its browser side and its runtime in one process; prints what came.
import { buildResumeArray, HttpAgent } from "@ag-ui/client";
import { CopilotKitCore } from "@copilotkit/core";
import { CopilotRuntime, createCopilotRuntimeHandler } from "@copilotkit/runtime/v2";
import { z } from "zod";

const [address, { asked, called, summed, failed }] = [
  process.argv[2],
  JSON.parse(process.argv[3]),
];
const RUNTIME = "http://runtime.test/api/copilotkit";
const WEATHER = {
  name: "weather",
  description: "The weather of a city.",
  parameters: z.object({ city: z.string() }),
  handler: async ({ city }) => `22 degrees in ${city}`,
};

const agents = { default: new HttpAgent({ url: `${address}/api/v1/agui` }) };
const handler = createCopilotRuntimeHandler({
  runtime: new CopilotRuntime({ agents }),
  basePath: "/api/copilotkit",
});
const fetchOverTheNet = globalThis.fetch;
globalThis.fetch = (url, options) =>
  String(url).startsWith(RUNTIME)
    ? handler(new Request(url, options))
    : fetchOverTheNet(url, options);
globalThis.window = globalThis; // it connects in a browser only

async function talk(content, properties = {}, tools = []) {
  const core = new CopilotKitCore({
    runtimeUrl: RUNTIME,
    properties: { model: "lorem", ...properties },
    tools,
  });
  await new Promise((resolve) =>
    core.subscribe({
      onRuntimeConnectionStatusChanged: ({ status }) => status === "connected" && resolve(),
    }),
  );
  const errors = [];
  core.subscribe({ onError: ({ error }) => void errors.push(error.message) });
  const agent = core.getAgent("default");
  agent.addMessage({ id: "question", role: "user", content });
  await core.runAgent({ agent });
  while (agent.pendingInterrupts.length && !errors.length) {
    const payload = { approved: true, editedArgs: { a: 20, b: 3 } };
    const answers = agent.pendingInterrupts.map(({ id }) => [id, { status: "resolved", payload }]);
    const resume = buildResumeArray(agent.pendingInterrupts, Object.fromEntries(answers));
    await core.runAgent({ agent, resume });
  }
  const messages = agent.messages.slice(1).map(({ role, content }) => [role, content]);
  return { errors, messages };
}

console.log(
  JSON.stringify({
    streams: await talk(asked, { think: true }),
    client: await talk(called, {}, [WEATHER]),
    server: await talk(summed, { tools: ["add"] }),
    failed: await talk(failed),
  }),
);
process.exit(); // its stores keep timers
