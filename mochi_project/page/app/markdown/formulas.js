// Formulas in Markdown. KaTeX is loaded with the first one.

const CHARACTERS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text) => text.replace(/[&<>"]/g, (character) => CHARACTERS[character]);

const PATTERNS = [
  // $$…$$ and \[…\] are shown on lines of their own, $…$ and \(…\) within the text. A `$` that is
  // money has a space or a digit beside it.
  [/^\$\$((?:\\[^]|[^\\$])+?)\$\$/, true],
  [/^\\\[((?:(?!\\\])[^])+?)\\\]/, true],
  [/^\\\(((?:(?!\\\))[^\n])+?)\\\)/, false],
  [/^\$((?:\\.|[^\\$\n\s])(?:(?:\\.|[^\\$\n])*?(?:\\.|[^\\$\n\s]))?)\$(?![\d\w])/, false],
];

const LONGEST = 20_000;

function tokenOf(source, onlyDisplayed) {
  for (const [pattern, display] of PATTERNS) {
    if (onlyDisplayed && !display) continue;
    const match = pattern.exec(source.slice(0, LONGEST));
    if (match) return { raw: match[0], formula: match[1].trim(), display };
  }
  return undefined;
}

function renderer({ formula, display }) {
  const kind = display ? ' data-display="yes"' : "";
  return `<span class="formula" data-formula="${escaped(formula)}"${kind}>${escaped(formula)}</span>`;
}

export const formulas = [
  {
    name: "formulaBlock",
    level: "block",
    start: (source) => source.match(/\$\$|\\\[/)?.index,
    tokenizer(source) {
      const token = tokenOf(source, true);
      const after = token && source.slice(token.raw.length);
      if (!token || !/^[ \t]*(?:\n|$)/.test(after)) return undefined;
      return { type: "formulaBlock", ...token };
    },
    renderer: (token) => `<p>${renderer(token)}</p>\n`,
  },
  {
    name: "formula",
    level: "inline",
    start: (source) => source.match(/\$|\\[([]/)?.index,
    tokenizer(source) {
      const token = tokenOf(source, false);
      return token && { type: "formula", ...token };
    },
    renderer,
  },
];

let loading = null;

function load() {
  loading ??= new Promise((resolve, reject) => {
    const folder = new URL("../../vendor/katex/", import.meta.url);
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = new URL("katex.min.css", folder);
    document.head.append(style);
    // It is a script, not a module: it sets `katex` in the window.
    import(new URL("katex.min.js", folder)).then(() => resolve(window.katex), reject);
  });
  return loading;
}

/** Show the formulas below an element as formulas. */
export async function showFormulas(element) {
  const places = [...element.querySelectorAll("[data-formula]:not([data-shown])")];
  if (places.length === 0) return;
  const katex = await load();
  for (const place of places) {
    place.dataset.shown = "";
    try {
      katex.render(place.dataset.formula, place, {
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
}
