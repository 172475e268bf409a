// The title of the tab: how many calls wait, and the chat that is open.

import { effect } from "../library.js";
import { route } from "../router.js";
import { visible } from "../visible.js";
import { count } from "./inbox.js";
import { openChat } from "./open-chat.js";
import { sessions, titleOf } from "./sessions.js";

const LONGEST = 60; // characters of a chat's title

effect(() => {
  const { page, name } = route.value;
  const { id, loaded } = openChat.value;
  const { session } = (page === "chat" && name === id && loaded.value) || {};
  const waiting = count.value > 0 ? `(${count.value}) ` : "";
  const chat = session ? `${visible([...titleOf(session, sessions.value)].slice(0, LONGEST).join(""))} · ` : "";
  document.title = `${waiting}${chat}mochi`;
});
