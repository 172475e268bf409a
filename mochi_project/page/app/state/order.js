// Requests that are sent one after another, as they may overtake one another.

let isLeft;
let leave;

function stay() {
  isLeft = new Promise((resolve) => {
    leave = resolve;
  });
}
stay();
window.addEventListener("pagehide", () => {
  leave();
  stay();
});

/**
 * Return a function that does an action when those that it was called with before are done, and resolves to what the
 * action does. What waits when the page is left is done at once.
 */
export function makeOrder() {
  let last = Promise.resolve();
  return (action) => {
    const done = Promise.race([last, isLeft]).then(action);
    last = done.catch(() => {});
    return done;
  };
}
