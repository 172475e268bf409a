// The address of what is shown, behind the `#`: "" is a new chat, "chat/ID" a session, "tag/TAG" the chats of a tag.

import { signal } from "./library.js";

/** Pages that need a name. */
const NAMED = ["chat", "tag"];

function current() {
  const [page, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    const name = decodeURIComponent(rest.join("/"));
    if (name || !NAMED.includes(page)) return { page, name };
  } catch {
    // What is no address is a new chat.
  }
  return { page: "", name: "" };
}

export const route = signal(current());

window.addEventListener("hashchange", () => {
  route.value = current();
});

export function address(page, name = "") {
  return `#/${page}${name && `/${encodeURIComponent(name)}`}`;
}

export function go(page, name) {
  location.hash = address(page, name);
}
