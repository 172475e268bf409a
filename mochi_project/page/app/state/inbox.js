// The calls of all sessions that wait for a person.

import { follow, get, part, post } from "../api.js";
import { computed, signal } from "../library.js";
import { fail } from "./notices.js";

export const confirmations = signal([]);
export const count = computed(() => confirmations.value.length);

async function load() {
  const all = [];
  let cursor = null;
  do {
    const answer = await get(`confirmations?limit=500${cursor ? `&cursor=${part(cursor)}` : ""}`);
    all.push(...answer.confirmations);
    cursor = answer.next_cursor;
  } while (cursor);
  confirmations.value = all;
}

/** Follow what is asked and decided, in all sessions. */
export async function watch() {
  for await (const { event, data } of follow("confirmations/events")) {
    if (event === "connected") await load().catch(fail); // what comes next is followed all the same
    else {
      const { confirmation } = data;
      const others = confirmations
        .peek()
        .filter(({ confirmation_id: id }) => id !== confirmation.confirmation_id);
      confirmations.value = event === "asked" ? [...others, confirmation] : others;
    }
  }
}

/** Allow or deny a call: `{approved, reason, arguments, remember, patterns}`. */
export function decide(confirmationId, decision) {
  return post(`confirmations/${part(confirmationId)}`, {
    confirmation_id: confirmationId,
    ...decision,
  });
}
