// Keeps buttons from clicks that were meant for something else.
//
// A second click comes a moment after the first, when the next call may have come under the pointer.
// So what has just appeared, changed or moved takes nothing for a while.

import { useEffect, useRef, useState } from "../library.js";
import { settle } from "./end.js";

const MILLISECONDS = 1000;

const SLIGHT = 2; // pixels that are no move: where a place is rounded

/** Return whether a value has been the same for a while, or since the beginning, when it was `before`. */
export function useSettled(value, before = value) {
  const last = useRef({ value: before, changes: 0 });
  if (last.current.value !== value) last.current = { value, changes: last.current.changes + 1 };
  const { changes } = last.current;
  const [settled, setSettled] = useState(0);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(changes), MILLISECONDS);
    return () => clearTimeout(timer);
  }, [changes]);
  return settled === changes;
}

/** Return how often the element has come higher or lower as what it is in has got another size. */
export function useMoves(element) {
  const [moves, setMoves] = useState(0);
  useEffect(() => {
    const topOf = () => element.current.getBoundingClientRect().top;
    let top = topOf();
    const observer = new ResizeObserver(() => {
      if (Math.abs(topOf() - top) <= SLIGHT) return;
      top = topOf();
      setMoves((count) => count + 1);
    });
    observer.observe(element.current.parentElement);
    return () => observer.disconnect();
  }, []);
  return moves;
}

/** Frames in which the page has been laid out anew after a change. */
const FRAMES = 3;

/**
 * Return `{isStill, check, willMove}` of the element: whether it has been seen at its place for long
 * enough; `check()` looks now, and says so; `willMove()` tells that a change of the person's own moves it.
 */
export function useStillness(element) {
  const [isStill, setStill] = useState(false);
  const seen = useRef({ x: NaN, y: NaN, since: 0, expected: 0 });
  const check = () => {
    const { current } = seen;
    settle();
    const { x, y } = element.current.getBoundingClientRect();
    const isSame = Math.abs(x - current.x) <= SLIGHT && Math.abs(y - current.y) <= SLIGHT;
    if (!isSame && current.expected === 0) current.since = performance.now();
    if (!isSame) Object.assign(current, { x, y });
    const isNow = performance.now() - current.since >= MILLISECONDS;
    setStill(isNow);
    return isNow;
  };
  useEffect(() => {
    let frame = 0;
    const look = () => {
      check();
      seen.current.expected = Math.max(0, seen.current.expected - 1);
      frame = requestAnimationFrame(look);
    };
    // Nobody has seen what a hidden tab shows.
    const onVisible = () => {
      seen.current.since = performance.now();
    };
    look();
    document.addEventListener("visibilitychange", onVisible);
    return () => {
      cancelAnimationFrame(frame);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, []);
  const willMove = () => {
    seen.current.expected = FRAMES;
  };
  return { isStill, check, willMove };
}
