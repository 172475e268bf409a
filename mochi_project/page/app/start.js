// Loads the page once more when a part of it has not arrived, as when the network changes meanwhile.
//
// A browser says so of a file at its element, and shows nothing then.

const KEY = "mochi-loaded-again";
let isWhole = true;

addEventListener("error", ({ target }) => {
  if (!["SCRIPT", "LINK"].includes(target.tagName)) return;
  isWhole = false;
  if (sessionStorage.getItem(KEY)) return; // it did not help
  sessionStorage.setItem(KEY, "yes");
  location.reload();
}, true);
addEventListener("load", () => isWhole && sessionStorage.removeItem(KEY));
