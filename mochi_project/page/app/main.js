// The start of the page.

import { html, render } from "./library.js";
import { tokenIsMissing } from "./api.js";
import { models } from "./state/catalogue.js";
import * as inbox from "./state/inbox.js";
import { fail } from "./state/notices.js";
import * as sessions from "./state/sessions.js";
import { direction, language } from "./texts.js";
import { App } from "./views/app.js";

document.documentElement.lang = language;
document.documentElement.dir = direction;
models.need();
sessions.watch();
inbox.watch().catch((error) => {
  if (!tokenIsMissing.peek()) fail(error);
});
render(html`<${App} />`, document.getElementById("app"));
