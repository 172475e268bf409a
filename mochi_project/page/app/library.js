// The libraries as the other modules use them.

import { Component, h, html, render, useEffect, useLayoutEffect, useMemo, useRef, useState }
  from "../vendor/preact/standalone.module.js";
import { computed, effect, signal, batch } from "../vendor/signals/signals-core.module.js";

export { h, html, render, useEffect, useLayoutEffect, useMemo, useRef, useState };
export { batch, computed, effect, signal };

/** Return the value of a signal, and draw the component again when it changes. */
export function useValue(source) {
  const [, draw] = useState(0);
  const drawn = useRef(null);
  drawn.current = source.peek();
  // An effect runs after the painting; what has changed since the drawing is drawn then.
  useEffect(() => source.subscribe((value) => {
    if (value !== drawn.current) draw((count) => count + 1);
  }), [source]);
  return drawn.current;
}

/** Return a component that is drawn again only when one of its properties differs. */
export function memo(view) {
  return class extends Component {
    shouldComponentUpdate(next) {
      const before = this.props;
      return Object.keys({ ...before, ...next }).some((name) => before[name] !== next[name]);
    }

    render(properties) {
      return h(view, properties);
    }
  };
}

/** What it has inside, or `fallback(error)` when that cannot be drawn. */
export class Boundary extends Component {
  componentDidCatch(error) {
    this.setState({ error });
  }

  render({ fallback, children }, { error }) {
    return error ? fallback(error) : children;
  }
}

/** Return a reference for a field, which gets the focus when it appears. */
export function useFocus() {
  const field = useRef(null);
  useLayoutEffect(() => field.current.focus(), []);
  return field;
}

/** After a tap, `:hover` and the focus stay where the finger was. */
const IN_USE = window.matchMedia("(hover: hover)").matches
  ? ":is(:hover, :focus-within)"
  : ":has([aria-expanded=true], :focus-visible)";

/** Return whether the pointer or the focus is in the element; where one taps, whether a menu is open there. */
export function isUsed(element) {
  return element?.matches(IN_USE) ?? false;
}

/** Call the function when the element loses its last use: on Escape, and on a click elsewhere. */
export function useDismiss(element, isOpen, dismiss) {
  useLayoutEffect(() => { // from the moment when it is seen
    if (!isOpen) return undefined;
    const onKey = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      dismiss(event);
    };
    const onPointer = (event) => {
      if (!element.current?.contains(event.target)) dismiss(event);
    };
    document.addEventListener("keydown", onKey, true);
    document.addEventListener("pointerdown", onPointer, true);
    return () => {
      document.removeEventListener("keydown", onKey, true);
      document.removeEventListener("pointerdown", onPointer, true);
    };
  }, [isOpen]);
}
