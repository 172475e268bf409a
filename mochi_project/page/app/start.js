// Loads the page once more when a part of it has not arrived, as when the network changes meanwhile; if that does
// not help, says so.
//
// A browser says so of a file at its element, and shows nothing then.

const KEY = "mochi-loaded-again";
const isAgain = sessionStorage.getItem(KEY) !== null;
let isWhole = true;

addEventListener("error", ({ target }) => {
  if (!isWhole || !["SCRIPT", "LINK"].includes(target.tagName)) return;
  isWhole = false;
  if (isAgain) return; // it did not help
  sessionStorage.setItem(KEY, "yes");
  location.reload();
}, true);
addEventListener("load", () => {
  const line = document.getElementById("incomplete"); // the page takes its place when it is drawn
  if (isWhole) sessionStorage.removeItem(KEY);
  else if (isAgain && line) line.hidden = false;
});
