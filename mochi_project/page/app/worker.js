// The service worker of the installed app: what a window of it shows while the server does not answer.
//
// It keeps nothing, so no page is ever an old one: the server is always asked, and only for the page itself.

import { direction, language, t } from "./texts.js";

const STYLE = `
  body { margin: 0; font: 16px/1.55 system-ui, sans-serif; text-align: center; }
  main { display: grid; place-content: center; gap: 16px; height: 100dvh; padding: 20px; box-sizing: border-box; }
  h1, p { margin: 0; }
  button { justify-self: center; padding: 8px 16px; font: inherit; }`;

/** What proxies answer for a server that is not there. */
const isAway = ({ status }) => status >= 502 && status <= 504;

const SCRIPT = `
  const isAway = ${isAway};
  const load = (response) => isAway(response) || location.reload();
  const tryAgain = () => fetch(location.href, { cache: "no-store" }).then(load, () => {});
  document.querySelector("button").addEventListener("click", tryAgain);
  addEventListener("online", tryAgain);
  setInterval(tryAgain, 3000);`;

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

function notConnected() {
  return new Response(
    `<!DOCTYPE html><html lang="${language}" dir="${direction}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>mochi</title><style>${STYLE}</style></head>
<body><main><h1>${t.notConnected}</h1><p>${t.aboutNotConnected}</p><button>${t.tryAgain}</button></main>
<script>${SCRIPT}</script></body></html>`,
    { status: 503, headers: { "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": POLICY } },
  );
}

async function answer({ request, preloadResponse }) {
  try {
    const response = (await preloadResponse) ?? (await fetch(request));
    return isAway(response) ? notConnected() : response;
  } catch {
    return notConnected();
  }
}

self.addEventListener("install", (event) => {
  // All else goes past this worker where a browser can be told so, and waits neither for its start nor for its end.
  event.addRoutes?.({ condition: { not: { requestMode: "navigate" } }, source: "network" })?.catch(() => {});
  self.skipWaiting(); // a new version takes the place of an old one at once
});
self.addEventListener("activate", (event) => { // the page need not wait for the start of the worker
  event.waitUntil(self.registration.navigationPreload?.enable());
});
self.addEventListener("fetch", (event) => {
  if (event.request.mode === "navigate") event.respondWith(answer(event));
});
