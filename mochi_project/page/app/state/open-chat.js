// The chat that is open.

import { connectionLost, tokenIsMissing } from "../api.js";
import { effect, signal } from "../library.js";
import { go, route } from "../router.js";
import { chatOf } from "./chat.js";
import { fail } from "./notices.js";
import { activeRuns, sessions } from "./sessions.js";

export const openChat = signal(chatOf(null));

/** Open a chat in the place of the one that is open, or load that again; resolves as `Chat.open`. */
export async function open(chat) {
  const before = openChat.peek();
  if (chat !== before) {
    before.leave();
    openChat.value = chat;
  }
  return chat.open();
}

const isShown = () => route.peek().name === openChat.peek().id;

// It may not have been loaded without a connection, and another token may be another person's.
connectionLost.subscribe((isLost) => isLost || !isShown() || open(openChat.peek()));
tokenIsMissing.subscribe(async (isMissing) => {
  if (isMissing) return;
  const error = await open(isShown() ? openChat.peek() : chatOf(null));
  if (error?.status === 404 && isShown()) go("");
});

// Another tab or program may start a run of the open session, or change it.
effect(() => {
  const run = activeRuns.value.get(openChat.peek().id);
  const listed = sessions.value.find(({ session_id: id }) => id === openChat.peek().id);
  openChat.peek().update(run, listed?.updated_at).catch(fail);
});
