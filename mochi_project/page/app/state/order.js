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
 * Return `{change, use}`, which do an action when those before are done, and resolve to what it does. What uses changes
 * fails when one that it waits for fails. What waits when the page is left is done at once.
 */
export function makeOrder() {
  let last = Promise.resolve();
  const changes = new Set();
  const after = (before, action) => {
    const done = Promise.race([before, isLeft]).then(action);
    last = done.catch(() => {});
    return done;
  };
  return {
    async change(action) {
      const done = after(last, action);
      changes.add(done);
      try {
        return await done;
      } finally {
        changes.delete(done);
      }
    },
    use(action) {
      const needed = [...changes];
      return after(last.then(() => Promise.all(needed)), action);
    },
  };
}
