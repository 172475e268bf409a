// Models that the server can fetch, and how far it is with them.

import { get, postStream } from "../api.js";
import { signal } from "../library.js";
import { preference } from "../storage.js";
import { fail, notify } from "./notices.js";
import { t } from "../texts.js";
import { models } from "./catalogue.js";

/** `{name, size_mb, capabilities, present, pulling}` each. */
export const pullable = signal([]);

/** The model that was fetched last, or null. */
export const fetched = signal(null);

/** `{completed, total}` of each model that is being fetched, by its name; null where not known. */
export const pulls = signal({});

function report(name, progress) {
  const { [name]: _, ...others } = pulls.peek();
  pulls.value = progress ? { ...others, [name]: progress } : others;
}

/** List what can be fetched, and follow what is being fetched already. */
export async function load() {
  pullable.value = (await get("models/pull")).models;
  for (const { name, pulling } of pullable.peek()) if (pulling) pull(name);
}

/** Fetch a model, and follow that to its end; the next new chat is with it. */
export async function pull(name) {
  if (pulls.peek()[name]) return;
  report(name, { completed: null, total: null });
  try {
    let problem = null;
    for await (const { event, data } of postStream("models/pull", { model: name })) {
      if (event === "pull_progress" && data.total) report(name, data);
      if (event === "error") problem = data;
    }
    if (problem) throw problem;
    notify(t.isPulled(name));
    preference.write("model", name);
    await models.reload();
    fetched.value = name;
  } catch (error) {
    fail(error);
  }
  await load().catch(fail); // it is not offered any more when it is no longer being fetched
  report(name, null);
}
