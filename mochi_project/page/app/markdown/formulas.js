// Formulas in Markdown. KaTeX is loaded with the first one.

import { startOfLine } from "./footnotes.js";

const CHARACTERS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text) => text.replace(/[&<>"]/g, (character) => CHARACTERS[character]);

const ENVIRONMENTS = "(?:equation|align|aligned|alignat|gather|multline|cases|[pbvBV]?matrix|array|split)";

const PATTERNS = [
  // $$…$$ and \[…\] are shown on lines of their own, as is \begin{…}…\end{…}; $…$, $`…`$ and \(…\) within the text.
  { pattern: /^\$\$((?:\\[^]|[^\\$])+?)\$\$/, display: true },
  { pattern: /^\\\[((?:(?!\\\])[^])+?)\\\]/, display: true },
  { pattern: new RegExp(`^(\\\\begin\\{(${ENVIRONMENTS}\\*?)\\}[^]*?\\\\end\\{\\2\\})`), display: true },
  { pattern: /^\\\(((?:(?!\\\))[^\n])+?)\\\)/ },
  { pattern: /^\$`([^`\n]+)`\$/ },
  { pattern: /^\$((?:\\.|[^\\$\n\s])(?:(?:\\.|[^\\$\n])*?(?:\\.|[^\\$\n\s]))?)\$(?!\d)/, isMoney },
];

const LONGEST = 5000; // characters
const MOST_SYMBOLS = 1_000; // each is some elements
const MILLISECONDS = 5; // before a frame, which takes much longer: a formula is some hundred elements

/** Whether what is between two `$` is text between two sums of money, or names of a shell. */
function isMoney(formula, after) {
  const isMarked = /[\\^_={}]/.test(formula);
  if (/^\w/.test(after) && !isMarked && !/^\p{L}$/u.test(formula)) return true;
  return !isMarked && /^\d/.test(formula) && /\p{L}{2}|[,;]\s|\*\*/u.test(formula);
}

/** Whether a formula can be shown as one in a step that takes no long time. */
export const isShort = (formula) => (formula.match(/\\[a-z]+|\S/gi)?.length ?? 0) <= MOST_SYMBOLS;

function tokenOf(source, onlyDisplayed) {
  const near = source.slice(0, LONGEST);
  for (const { pattern, display = false, isMoney: isOther } of PATTERNS) {
    if (onlyDisplayed && !display) continue;
    const match = pattern.exec(near);
    if (match && isShort(match[1]) && !isOther?.(match[1], near.slice(match[0].length))) {
      return { raw: match[0], formula: match[1].trim(), display };
    }
  }
  return undefined;
}

function renderer({ formula, display }) {
  const kind = display ? ' data-display="yes"' : "";
  return `<span class="formula" data-formula="${escaped(formula)}"${kind}>${escaped(formula)}</span>`;
}

export const formulaBlock = (text) => `<p>${renderer({ formula: text.trim(), display: true })}</p>\n`;

export const formulas = [
  {
    name: "formulaBlock",
    level: "block",
    start: (source) => startOfLine(source, /\n(?:\$\$|\\\[|\\begin\{)/),
    tokenizer(source) {
      const token = tokenOf(source, true);
      const after = token && source.slice(token.raw.length);
      if (!token || !/^[ \t]*(?:\n|$)/.test(after)) return undefined;
      return { type: "formulaBlock", ...token };
    },
    renderer: ({ formula }) => formulaBlock(formula),
  },
  {
    name: "formula",
    level: "inline",
    start: (source) => source.match(/\$|\\[([]|\\begin\{/)?.index,
    tokenizer(source) {
      const token = tokenOf(source, false);
      return token && { type: "formula", ...token };
    },
    renderer,
  },
];

/** Wait until what was changed has been painted; in a tab that is not seen nothing is. */
function nextFrame() {
  return new Promise((resolve) => {
    if (document.hidden) setTimeout(resolve);
    else requestAnimationFrame(() => setTimeout(resolve));
  });
}

let style = null;

/** Load KaTeX: a script, not a module, which sets `katex` in the window, and its style. What failed is tried again. */
async function load() {
  const folder = new URL("../../vendor/katex/", import.meta.url);
  await import(new URL("katex.min.js", folder));
  if (style?.isConnected) return;
  style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = new URL("katex.min.css", folder);
  style.onerror = ({ target }) => target.remove();
  document.head.append(style);
}

const waiting = []; // places of formulas
let isShowing = false;

function show(place) {
  place.dataset.shown = "";
  try {
    window.katex.render(place.dataset.formula, place, {
      displayMode: place.dataset.display === "yes",
      throwOnError: true,
      trust: false,
      maxExpand: 200,
      maxSize: 20,
      strict: "ignore",
    });
  } catch {
    place.textContent = place.dataset.formula; // as it was written
  }
}

/** Show the formulas below an element as formulas, a few in each frame. */
export async function showFormulas(element) {
  waiting.push(...element.querySelectorAll("[data-formula]:not([data-shown])"));
  if (isShowing || waiting.length === 0) return;
  isShowing = true;
  try {
    await load();
    while (waiting.length > 0) {
      const end = performance.now() + MILLISECONDS;
      while (waiting.length > 0 && performance.now() < end) {
        const place = waiting.shift();
        if (place.isConnected && !("shown" in place.dataset)) show(place);
      }
      await nextFrame();
    }
  } finally {
    waiting.length = 0;
    isShowing = false;
  }
}
