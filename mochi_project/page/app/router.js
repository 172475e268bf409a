// The address of what is shown, behind the `#`: "" is a new chat, "chat/ID" a session.

import { signal } from "./library.js";

function current() {
  const [page, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    return { page, name: decodeURIComponent(rest.join("/")) };
  } catch {
    return { page: "", name: "" };
  }
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
