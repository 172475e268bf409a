// Keeps the chats of a list at their places while a click may be meant for one of them.

import { isUsed, useRef, useState } from "../library.js";

/**
 * Return `{placed, props}`: `placed` has `[session, group]` of each, in an order that stays while the element with
 * `props` is used, or `isHeld`. What is new comes last then; what has gone comes back to its place. Another filter and
 * another pin are what the person wants to see: they show the true order.
 */
export function useSteady({ sessions, foundBy, groupOf = () => "", isHeld = false }) {
  const [, draw] = useState(0);
  const ref = useRef(null);
  const drawn = useRef({ places: new Map() });
  const { current: before } = drawn;
  const isPinnedAsBefore = ({ session_id: id, pinned }) => (before.places.get(id)?.pinned ?? pinned) === pinned;
  const isSame = before.foundBy === foundBy && before.places.size > 0 && sessions.every(isPinnedAsBefore);
  const isKept = isSame && (isHeld || isUsed(ref.current));
  const places = isKept ? before.places : new Map();
  for (const session of sessions) {
    const { session_id: id, pinned } = session;
    if (!places.has(id)) places.set(id, { pinned, group: groupOf(session, isKept) });
  }
  drawn.current = { foundBy, places };
  const now = new Map(sessions.map((session) => [session.session_id, session]));
  const placed = [...places].filter(([id]) => now.has(id)).map(([id, { group }]) => [now.get(id), group]);
  const onLeave = ({ currentTarget, relatedTarget }) => {
    if (!currentTarget.contains(relatedTarget)) draw((count) => count + 1);
  };
  return { placed, props: { ref, onPointerLeave: onLeave, onFocusOut: onLeave } };
}
