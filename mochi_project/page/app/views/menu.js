// A button that opens a menu of actions.

import { html, useDismiss, useLayoutEffect, useRef, useState } from "../library.js";
import { Icon, IconButton } from "./icons.js";

const GAP = 8; // pixels between a menu and the edge of the window

/**
 * Show a menu below its button, or beside it where there is not enough place: nothing scrolls and nothing of it comes
 * under the pointer, so a second click meets the button again.
 */
function place(list, button) {
  list.showPopover();
  const { bottom, left, right } = button.getBoundingClientRect();
  const top = Math.min(bottom, window.innerHeight - list.offsetHeight - GAP);
  const isBelow = top === bottom;
  const isRtl = getComputedStyle(list).direction === "rtl";
  const start = isRtl ? (isBelow ? left : right) : (isBelow ? right : left) - list.offsetWidth;
  Object.assign(list.style, { top: `${top}px`, left: `${start}px` });
}

/** `items` are `{label, icon, run}` each; null is left out. */
export function Menu({ label, items }) {
  const [isOpen, setOpen] = useState(false);
  const element = useRef(null);
  const close = () => {
    setOpen(false);
    element.current?.querySelector("button")?.focus();
  };
  useDismiss(element, isOpen, ({ type }) => (type === "keydown" ? close() : setOpen(false)));
  useLayoutEffect(() => {
    if (!isOpen) return undefined;
    const [button, list] = element.current.children;
    place(list, button);
    list.querySelector("[role=menuitem]").focus({ preventScroll: true });
    const onScroll = ({ target }) => {
      if (target.contains(element.current)) setOpen(false); // the button goes away from it
    };
    document.addEventListener("scroll", onScroll, true);
    return () => document.removeEventListener("scroll", onScroll, true);
  }, [isOpen]);

  const onKey = (event) => {
    const entries = [...element.current.querySelectorAll("[role=menuitem]")];
    const index = entries.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      entries[(index + step + entries.length) % entries.length]?.focus();
    } else if (event.key === "Tab") setOpen(false);
  };
  const choose = (item) => {
    close();
    item.run();
  };
  return html`<div class="menu" ref=${element}>
    <${IconButton} icon="more" label=${label} aria-haspopup="menu" aria-expanded=${`${isOpen}`}
      onClick=${() => setOpen(!isOpen)} />
    ${isOpen && html`<div class="menu-list" role="menu" popover="manual" tabindex="-1" onKeyDown=${onKey}>
      ${items.filter(Boolean).map((item) => html`<button type="button" role="menuitem" tabindex="-1"
        key=${item.label} onClick=${() => choose(item)}>
        <${Icon} name=${item.icon} />${item.label}
      </button>`)}
    </div>`}
  </div>`;
}
