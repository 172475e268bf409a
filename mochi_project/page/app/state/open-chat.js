// The chat that is open.

import { effect, signal } from "../library.js";
import { chatOf } from "./chat.js";
import { fail } from "./notices.js";
import { activeRuns, sessions } from "./sessions.js";

export const openChat = signal(chatOf(null));

/** Open a chat in the place of the one that is open; resolves when it is loaded. */
export async function open(chat) {
  const before = openChat.peek();
  if (chat === before) return;
  before.leave();
  openChat.value = chat;
  await chat.open();
}

// Another tab or program may start a run of the open session, or change it.
effect(() => {
  const run = activeRuns.value.get(openChat.peek().id);
  const listed = sessions.value.find(({ session_id: id }) => id === openChat.peek().id);
  openChat.peek().update(run, listed?.updated_at).catch(fail);
});
