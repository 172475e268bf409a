// Sessions that are selected, for what is done with several at once.

import { signal } from "../library.js";

/** Ids; null while nobody selects. */
export const selection = signal(null);

export function toggle(id) {
  const ids = selection.peek();
  selection.value = ids.includes(id) ? ids.filter((each) => each !== id) : [...ids, id];
}
