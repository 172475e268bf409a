// What the server has: models, tools, agents, prompts. Each is loaded when it is first shown.

import { get } from "../api.js";
import { signal } from "../library.js";
import { go } from "../router.js";
import { preference } from "../storage.js";

/** Its state is `{value, loaded, error}`: the last answer, whether there was one, and why the last request failed, or null. */
function resource(path, empty) {
  const state = signal({ value: empty, loaded: false, error: null });
  let request = null;
  let latest = 0;
  async function load() {
    latest += 1;
    const number = latest;
    let next;
    try {
      next = { value: await get(path), loaded: true, error: null };
    } catch (error) {
      next = { ...state.peek(), error };
    }
    if (number < latest) await request; // a later one, which knows more
    else state.value = next;
  }
  return {
    state,
    reload: () => {
      request = load();
      return request;
    },
    need: () => {
      request ??= load();
      return request;
    },
  };
}

export const models = resource("models", { models: [], problems: [] });
export const inMemory = resource("../../ollama/api/ps", { models: [] }); // of vendors, that is not known
export const tags = resource("tags", { tags: [] });
export const tools = resource("tools", { tools: {}, groups: {}, problems: [] });
export const agents = resource("agents", { agents: {}, problems: [] });
export const prompts = resource("system-prompts", { prompts: [] });
export const presets = resource("presets", { presets: [] });
export const servers = resource("mcp/servers", { servers: {}, problems: [] });
export const health = resource("health", null);
export const providers = resource("models/check", null);
export const doctor = resource("doctor", null);
export const rules = resource("policies", { policies: [], problems: [] });

/** Return whether a model is not in the list, once there is one. */
export function isMissing(name) {
  return models.state.peek().loaded && Boolean(name) && !modelNamed(name);
}

/** Begin a chat with a model, a preset or an agent. */
export function chatWith(name) {
  preference.write("model", name);
  go("");
}

/** Return the name of the model that was used last if it is among these, else of the first one; null if there is none. */
export function usualModel(list) {
  const last = preference.read("model");
  return list.some(({ name }) => name === last) ? last : (list[0]?.name ?? null);
}

/** Return the entry of a model in the list, or null. */
export function modelNamed(name) {
  return models.state.peek().value.models.find((model) => model.name === name) ?? null;
}
