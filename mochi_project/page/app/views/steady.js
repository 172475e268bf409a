// Keeps the chats of a list at their places while a click may be meant for one of them.

import { isUsed, useEffect, useRef, useState } from "../library.js";
import { own } from "../state/sessions.js";

const AGAIN_MILLISECONDS = 500; // from one look whether it is still used to the next

/**
 * Return `{placed, ref}`: `placed` has `[session, group]` of each, in an order that stays while the
 * element with `ref` is used, or `isHeld`. What is new waits as long, and what has gone comes back to
 * its place. Another filter, another pin and a new chat of the person's own show the true order: these
 * are what the person wants to see.
 */
export function useSteady({ sessions, foundBy, groupOf = () => "", isHeld = false }) {
  const [, draw] = useState(0);
  const ref = useRef(null);
  const drawn = useRef({ places: new Map() });
  const { current: before } = drawn;
  const isPlaced = ({ session_id: id, pinned }) => before.places.get(id)?.pinned === pinned;
  const mayWait = ({ session_id: id }) => !before.places.has(id) && !own.has(id);
  const isSame = before.foundBy === foundBy && before.places.size > 0
    && sessions.every((session) => isPlaced(session) || mayWait(session));
  const isKept = isSame && (isHeld || isUsed(ref.current));
  const places = isKept ? before.places : new Map(sessions.map((session) => [
    session.session_id, { pinned: session.pinned, group: groupOf(session) },
  ]));
  drawn.current = { foundBy, places };
  const now = new Map(sessions.map((session) => [session.session_id, session]));
  const placed = [...places].filter(([id]) => now.has(id)).map(([id, { group }]) => [now.get(id), group]);
  const isBehind = placed.length < sessions.length || placed.some(([session], index) => session !== sessions[index]);
  useEffect(() => {
    if (!isBehind) return undefined;
    const timer = setTimeout(() => draw((count) => count + 1), AGAIN_MILLISECONDS);
    return () => clearTimeout(timer);
  });
  return { placed, ref };
}
