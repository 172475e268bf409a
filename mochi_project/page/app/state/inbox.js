// The calls of all sessions that wait for a person.

import { follow, get, part, post, tokenIsMissing } from "../api.js";
import { computed, effect, signal } from "../library.js";
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

/** Follow what is asked and decided, in all sessions, until the signal is aborted. */
async function read(options) {
  let isListed = false;
  for await (const { event, data } of follow("confirmations/events", options)) {
    if (event === "connected") isListed = false;
    isListed ||= await load().then(() => true, fail); // what comes next is followed all the same
    if (data) {
      const { confirmation } = data;
      const others = confirmations
        .peek()
        .filter(({ confirmation_id: id }) => id !== confirmation.confirmation_id);
      confirmations.value = event === "asked" ? [...others, confirmation] : others;
    }
  }
}

/** Follow it for whoever has the token. */
export function watch() {
  effect(() => {
    if (tokenIsMissing.value) return undefined;
    const reading = new AbortController();
    read(reading).catch(fail);
    return () => reading.abort();
  });
}

/** Allow or deny a call: `{approved, reason, arguments, remember, patterns}`. */
export function decide(confirmationId, decision) {
  return post(`confirmations/${part(confirmationId)}`, {
    confirmation_id: confirmationId,
    ...decision,
  });
}
