// Registers the service worker of the installed app, for all below the root of the server.

const root = new URL("../../../", import.meta.url); // this module is at page/<version>/app/offline.js
const policy = window.trustedTypes?.createPolicy("mochi-worker", {
  createScriptURL: () => new URL("worker.js", import.meta.url).href,
});

/** Let the app say that it is not connected; a browser that cannot do so says it in its own words. */
export async function sayWhenOffline() {
  const script = policy?.createScriptURL("") ?? new URL("worker.js", import.meta.url);
  await navigator.serviceWorker.register(script, { scope: root, type: "module" });
}
