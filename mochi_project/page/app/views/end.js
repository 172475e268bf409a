// What is in view while a conversation grows: its end, or a decision that a person may be about to make.

import { useEffect, useLayoutEffect, useRef, useState } from "../library.js";

const NEAR = 60; // pixels from the end that count as its end

let settleShown = () => {};

/** Bring what is in view to the place where it is drawn in the next frame. */
export const settle = () => settleShown();

function isInView(element, scroller) {
  const { top, bottom } = element.getBoundingClientRect();
  const view = scroller.getBoundingClientRect();
  return bottom > view.top && top < view.bottom;
}

/**
 * Keep a decision that is in view at its place, whatever grows above and below it; without one, the
 * end while it is in view. Return `{scroller, content, isAtEnd, toEnd, leaveEnd}`.
 */
export function useEnd(session) {
  const scroller = useRef(null);
  const content = useRef(null);
  const sticks = useRef(true);
  const held = useRef({ decision: null, place: 0, end: 0 }); // by its buttons, as a pointer may be there
  const [isAtEnd, setAtEnd] = useState(true);
  const isNearEnd = ({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight < NEAR;
  const toEnd = () => {
    sticks.current = true;
    scroller.current.scrollTop = scroller.current.scrollHeight;
  };
  const keep = () => {
    const element = scroller.current;
    const { decision: before, place, end } = held.current;
    const endNow = element.scrollHeight - element.clientHeight;
    const all = [...content.current.querySelectorAll(".decision > .buttons")];
    const isThere = all.includes(before);
    if (all.length > 0 && !isThere && sticks.current) toEnd();
    const decision = isThere && isInView(before, element)
      ? before
      : all.findLast((each) => isInView(each, element)) ?? null;
    const placeNow = decision && decision.getBoundingClientRect().top - content.current.getBoundingClientRect().top;
    element.classList.toggle("holding", decision !== null);
    if (decision && decision === before) element.scrollTop += placeNow - place;
    else if (!decision && sticks.current && endNow !== end) toEnd(); // not where one has only come near it
    held.current = { decision, place: placeNow, end: endNow };
    setAtEnd(isNearEnd(element));
  };
  useLayoutEffect(toEnd, [session]);
  useLayoutEffect(keep); // after each drawing
  useEffect(() => {
    const element = scroller.current;
    let height = 0;
    const observer = new ResizeObserver(() => {
      keep();
      height = element.scrollHeight;
    });
    observer.observe(content.current);
    observer.observe(element);
    const onScroll = () => {
      // A scroll that is not the person's own comes with another height.
      if (element.scrollHeight !== height && sticks.current) return;
      sticks.current = isNearEnd(element);
      setAtEnd(sticks.current);
    };
    element.addEventListener("scroll", onScroll, { passive: true });
    settleShown = keep;
    return () => {
      settleShown = () => {};
      observer.disconnect();
      element.removeEventListener("scroll", onScroll);
    };
  }, []);
  const leaveEnd = () => {
    sticks.current = false;
  };
  return { scroller, content, isAtEnd, toEnd, leaveEnd };
}
