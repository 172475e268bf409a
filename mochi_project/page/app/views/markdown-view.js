// Markdown as it is shown; a text that grows is drawn block by block.

import { html, memo, useLayoutEffect, useRef } from "../library.js";
import { addCodeHeads, colourCode } from "../markdown/code.js";
import { showFormulas } from "../markdown/formulas.js";
import { patch } from "../markdown/patch.js";
import { MarkdownText } from "../markdown/render.js";
import { confirmLink } from "./dialog.js";

const Block = memo(({ content, isComplete }) => {
  const element = useRef(null);
  const source = `${content}`;
  useLayoutEffect(() => {
    const next = document.createElement("div");
    next.innerHTML = content;
    addCodeHeads(next);
    patch(element.current, next);
    if (isComplete) colourCode(element.current);
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

/** `isComplete` is false while more text may come. */
export const Markdown = memo(({ text, isComplete }) => {
  const parser = useRef(null);
  parser.current ??= new MarkdownText();
  const blocks = parser.current.blocks(text, { isComplete });
  const last = blocks.length - 2;
  return html`<div class="markdown" onClick=${onClick}>
    ${blocks.map((content, index) => html`<${Block} key=${index} content=${content}
      isComplete=${isComplete || index < last} />`)}
  </div>`;
});
