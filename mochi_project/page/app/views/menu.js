// A button that opens a menu of actions.

import { html, useDismiss, useEffect, useRef, useState } from "../library.js";
import { Icon, IconButton } from "./icons.js";

/** `items` are `{label, icon, run}` each; null is left out. */
export function Menu({ label, items }) {
  const [isOpen, setOpen] = useState(false);
  const element = useRef(null);
  const close = () => {
    setOpen(false);
    element.current?.querySelector("button")?.focus();
  };
  useDismiss(element, isOpen, ({ type }) => (type === "keydown" ? close() : setOpen(false)));
  useEffect(() => {
    if (!isOpen) return;
    element.current.querySelector("[role=menu]").scrollIntoView({ block: "nearest" });
    element.current.querySelector("[role=menuitem]")?.focus({ preventScroll: true });
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
    ${isOpen && html`<div class="menu-list" role="menu" tabindex="-1" onKeyDown=${onKey}>
      ${items.filter(Boolean).map((item) => html`<button type="button" role="menuitem" tabindex="-1"
        key=${item.label} onClick=${() => choose(item)}>
        <${Icon} name=${item.icon} />${item.label}
      </button>`)}
    </div>`}
  </div>`;
}
