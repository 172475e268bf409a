// Loads the page once more when a part of it has not arrived, as when the network changes meanwhile; if that does
// not help, says so.
//
// A browser says so of a file at its element, and shows nothing then; for one of which nothing comes it waits for ever.

const PATIENCE_MS = 30_000; // what has arrived until then is not asked for again

const isAgain = history.state?.isAgain === true; // it outlives a reload, and no browser forbids it
let isWhole = true;
let isLeaving = false;

function say(isMissing) {
  const line = document.getElementById("incomplete"); // this file comes before it
  if (line) line.hidden = !isMissing;
}

function loadAgain() {
  clearTimeout(patience);
  if (isAgain) return say(true); // it did not help
  isLeaving = true;
  history.replaceState({ isAgain: true }, "");
  location.reload();
}

const patience = setTimeout(loadAgain, PATIENCE_MS);

function onError({ target }) {
  if (!isWhole || !["SCRIPT", "LINK"].includes(target.tagName)) return;
  isWhole = false;
  loadAgain();
}

addEventListener("error", onError, true);
addEventListener("load", () => {
  removeEventListener("error", onError, true); // what is asked for later is no part that the page cannot do without
  clearTimeout(patience);
  if (isWhole && !isLeaving) history.replaceState(null, "");
  say(!isWhole && isAgain);
});
