// Notifications of the system while nobody looks at the page, once a person has asked for them.

import { effect, signal } from "../library.js";
import { go } from "../router.js";
import { preference } from "../storage.js";
import { t } from "../texts.js";
import { confirmations } from "./inbox.js";
import { notify } from "./notices.js";

export const canNotify = "Notification" in window;

/** Whether a person wants them, and the browser still allows it. */
export const areOn = signal(canNotify && preference.read("notifications") === "on" && Notification.permission === "granted");

function show(text, body, open) {
  const shown = new Notification(text, { body, tag: text });
  shown.addEventListener("click", () => {
    window.focus();
    open();
    shown.close();
  });
}

/** Say what has happened, if nobody looks. */
export function tell(text, body, open) {
  if (areOn.peek() && document.hidden) show(text, body, open);
}

/** Switch them on, which the browser asks about, or off. */
export async function toggle() {
  let isWanted = !areOn.peek();
  if (isWanted) {
    try {
      if ((await Notification.requestPermission()) !== "granted") throw new Error(t.notificationsRefused);
      show(t.notificationsAreOn, t.notifiesOf, () => {}); // some browsers have none for pages, and say so now
    } catch {
      isWanted = false;
      notify(t.notificationsRefused, { kind: "error" });
    }
  }
  areOn.value = isWanted;
  preference.write("notifications", isWanted ? "on" : null);
}

let known = new Set();

effect(() => {
  const all = confirmations.value;
  for (const { confirmation_id: id, tool_name: name } of all) {
    if (!known.has(id)) tell(t.callState.asking, t.callOf(name), () => go("inbox"));
  }
  known = new Set(all.map(({ confirmation_id: id }) => id));
});
