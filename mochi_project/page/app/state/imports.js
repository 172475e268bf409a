// Files whose conversations are imported, one after another.

import { query, tokenIsMissing, upload } from "../api.js";
import { effect, signal } from "../library.js";
import { t } from "../texts.js";
import { own, refresh } from "./sessions.js";

/** `{id, name, size, sent, result, error}` each, the latest first; `result` is what the API answers, else null. */
export const imports = signal([]);

/** `{id, file, model}` each, the next one first. */
const waiting = [];
let isBusy = false;

function update(id, changes) {
  imports.value = imports.peek().map((each) => (each.id === id ? { ...each, ...changes } : each));
}

/** Resolve to whether the browser can read a file: it cannot read a folder, or what is gone since. */
const canRead = (file) => file.slice(0, 1).arrayBuffer().then(() => true, () => false);

/** Import a file; resolves to false when the server wants a token first, else to true, also when it has failed. */
async function importFile({ id, file, model }) {
  try {
    const path = `sessions/import${query({ model })}`;
    const result = await upload(path, file, (sent) => update(id, { sent }));
    result.imported.forEach(({ session_id: session }) => own.add(session));
    update(id, { result });
    refresh();
  } catch (error) {
    if (error.status === 401) return false;
    update(id, { error: (await canRead(file)) ? error : new Error(t.cannotRead) });
  }
  return true;
}

async function importAll() {
  if (isBusy) return;
  isBusy = true;
  while (waiting.length > 0 && !tokenIsMissing.peek()) {
    if (await importFile(waiting[0])) waiting.shift();
  }
  isBusy = false;
}

effect(() => {
  if (!tokenIsMissing.value) importAll(); // what has waited for a token
});

/** Import files; `model` is that of new conversations of other programs, or "" for the one that they name. */
export function importFiles(files, model = "") {
  for (const file of files) {
    const id = imports.peek().length;
    const entry = { id, name: file.name, size: file.size, sent: 0, result: null, error: null };
    imports.value = [entry, ...imports.peek()];
    waiting.push({ id, file, model });
  }
  importAll();
}
