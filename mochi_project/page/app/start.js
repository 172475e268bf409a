// Loads the page once more when a part of it has not arrived, as when the network changes meanwhile; if that does
// not help, says so.
//
// A browser says so of a file at its element, and shows nothing then.

const isAgain = history.state?.isAgain === true; // it outlives a reload, and no browser forbids it
let isWhole = true;

addEventListener("error", ({ target }) => {
  if (!isWhole || !["SCRIPT", "LINK"].includes(target.tagName)) return;
  isWhole = false;
  if (isAgain) return; // it did not help
  history.replaceState({ isAgain: true }, "");
  location.reload();
}, true);
addEventListener("load", () => {
  const line = document.getElementById("incomplete"); // the page takes its place when it is drawn
  if (isWhole) history.replaceState(null, "");
  else if (isAgain && line) line.hidden = false;
});
