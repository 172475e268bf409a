// Loads the page once more when a part of it has not arrived, as when the network changes meanwhile.
//
// A browser says so of a file at its element, and shows nothing then.

const SECONDS = 10;
const KEY = "mochi-loaded-again";

addEventListener("error", ({ target }) => {
  if (!["SCRIPT", "LINK"].includes(target.tagName)) return;
  const last = Number(sessionStorage.getItem(KEY));
  if (Date.now() - last < SECONDS * 1000) return; // it did not help
  sessionStorage.setItem(KEY, `${Date.now()}`);
  location.reload();
}, true);
