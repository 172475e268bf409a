// The start of the page.

import { html, render } from "./library.js";
import { models } from "./state/catalogue.js";
import * as inbox from "./state/inbox.js";
import * as sessions from "./state/sessions.js";
import "./state/tab-title.js";
import { direction, language } from "./texts.js";
import { App } from "./views/app.js";
import { keepFocus } from "./views/focus.js";

document.documentElement.lang = language;
document.documentElement.dir = direction;
sessions.watch();
models.reload();
inbox.watch();
if (matchMedia("(display-mode: standalone)").matches && navigator.serviceWorker) {
  import("./offline.js").then(({ sayWhenOffline }) => sayWhenOffline()).catch(() => {}); // the app works without it
}
const root = document.getElementById("app");
keepFocus(root);
render(html`<${App} />`, root);
