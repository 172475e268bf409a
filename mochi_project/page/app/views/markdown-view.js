// Markdown as it is shown; a text that grows is drawn block by block.

import { Boundary, html, memo, useEffect, useLayoutEffect, useRef, useState } from "../library.js";
import { addHeads, colourCode } from "../markdown/code.js";
import { showFormulas } from "../markdown/formulas.js";
import { patch } from "../markdown/patch.js";
import { MarkdownText } from "../markdown/render.js";
import { confirmLink } from "./dialog.js";

const DRAWN = '[data-language="mermaid"], [data-language="vega"], [data-language="vega-lite"]';

/** Draw the diagrams and charts below an element; what draws them is loaded with the first one. */
async function draw(element) {
  if (document.documentElement.dataset.drawings !== "on" || !element.querySelector(DRAWN)) return;
  const { showDrawings } = await import("../markdown/drawings.js");
  showDrawings(element.querySelectorAll(DRAWN));
}

const LONGEST_REST = 4_000; // characters that are seen before they are drawn: they are laid out anew each time

const HEIGHT = 0.4; // pixels of a character of HTML, about, until it is laid out

const Block = memo(({ content, isComplete }) => {
  const element = useRef(null);
  const source = `${content}`;
  useLayoutEffect(() => {
    const next = document.createElement("div");
    next.innerHTML = content;
    addHeads(next);
    patch(element.current, next);
    // What seems small is laid out together with much else that seems to be in view.
    element.current.style.containIntrinsicBlockSize = `auto ${Math.round(source.length * HEIGHT)}px`;
    if (isComplete) {
      colourCode(element.current);
      draw(element.current).catch(() => {}); // the source is readable
    }
    showFormulas(element.current).catch(() => {}); // they are readable as they are written
  }, [source, isComplete]);
  return html`<div class="block" ref=${element}></div>`;
});

function onClick(event) {
  const link = event.target.closest("a[href]");
  if (!link) return;
  event.preventDefault();
  confirmLink(link.getAttribute("href"));
}

const Blocks = memo(({ text, isComplete }) => {
  const parser = useRef(null);
  const isArriving = useRef(!isComplete); // also when it is complete: all at once would be laid out
  const [, drawRest] = useState(0);
  parser.current ??= new MarkdownText();
  const { blocks, rest } = parser.current.blocks(text, { isComplete });
  useEffect(() => {
    if (!rest) return undefined;
    const timer = setTimeout(() => drawRest((count) => count + 1));
    return () => clearTimeout(timer);
  });
  const last = blocks.length - 2;
  return html`<div class=${isArriving.current ? "markdown arriving" : "markdown"} onClick=${onClick}>
    ${blocks.map((content, index) => html`<${Block} key=${index} content=${content}
      isComplete=${isComplete || index < last} />`)}
    ${rest && html`<div class="block plain" dir="auto" key="rest">${rest.slice(0, LONGEST_REST)}</div>`}
  </div>`;
});

/** `isComplete` is false while more text may come. What cannot be drawn is shown as it was written. */
export function Markdown({ text, isComplete }) {
  return html`<${Boundary} fallback=${() => html`<div class="markdown plain" dir="auto">${text}</div>`}>
    <${Blocks} text=${text} isComplete=${isComplete} />
  </${Boundary}>`;
}
