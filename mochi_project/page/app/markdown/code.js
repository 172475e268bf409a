// Blocks of code and tables: a head with a button that copies, the language, and colours.

import { t } from "../texts.js";
import { notify } from "../state/notices.js";
import { sanitize } from "./render.js";

const LONGEST = 30_000; // characters; more would take noticeable time
const MOST_SYMBOLS = 6_000; // each may be an element with a colour
const SYMBOL = /"[^"\n]*"|'[^'\n]*'|\w+|[^\w\s]/g;

const LANGUAGES = new Set(
  `bash c clojure cmake cpp csharp css dart diff django dockerfile elixir erlang fortran go graphql
  groovy haskell http ini java javascript json julia kotlin latex less lisp lua makefile markdown
  matlab nginx nix objectivec ocaml perl php plaintext powershell protobuf python python-repl r ruby
  rust scala scheme scss shell sql swift typescript vim xml yaml`.split(/\s+/),
);

const ALIASES = {
  "c++": "cpp", cc: "cpp", "c#": "csharp", cs: "csharp", docker: "dockerfile", golang: "go",
  hs: "haskell", html: "xml", svg: "xml", vue: "xml", toml: "ini", js: "javascript",
  jsx: "javascript", mjs: "javascript", jsonc: "json", json5: "json", kt: "kotlin", tex: "latex",
  make: "makefile", md: "markdown", "objective-c": "objectivec", objc: "objectivec",
  ps1: "powershell", py: "python", python3: "python", pycon: "python-repl", rb: "ruby",
  rs: "rust", sh: "bash", zsh: "bash", console: "shell", jinja: "django", ts: "typescript",
  tsx: "typescript", yml: "yaml", text: "plaintext", txt: "plaintext", patch: "diff",
};

async function highlighter(language) {
  const [{ default: core }, { default: grammar }] = await Promise.all([
    import("../../vendor/highlight/core.min.js"),
    import(`../../vendor/highlight/languages/${language}.min.js`),
  ]);
  if (!core.getLanguage(language)) core.registerLanguage(language, grammar);
  return core;
}

async function colour(code, written) {
  const language = ALIASES[written] ?? written;
  const text = code.textContent;
  if (!LANGUAGES.has(language) || language === "plaintext" || text.length > LONGEST) return;
  if (text.match(SYMBOL)?.length > MOST_SYMBOLS) return;
  const highlight = await highlighter(language);
  if (code.textContent !== text) return; // it has grown meanwhile
  code.innerHTML = sanitize(highlight.highlight(text, { language, ignoreIllegals: true }).value);
}

/** Put a head before a block; `textOf` gets what is behind the head, and returns what is copied. */
function addHead(block, kind, title, label, textOf) {
  const head = document.createElement("div");
  head.className = kind;
  const name = document.createElement("span");
  name.textContent = title;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet small";
  button.textContent = label;
  // Another block may come behind it.
  button.addEventListener("click", () => copy(textOf(head.nextElementSibling), button));
  head.append(name, button);
  block.before(head);
}

function textOfCell(cell) {
  const copied = cell.cloneNode(true);
  for (const formula of copied.querySelectorAll("[data-formula]")) formula.textContent = formula.dataset.formula;
  for (const end of copied.querySelectorAll("br")) end.replaceWith(" ");
  return copied.textContent.replace(/\s+/g, " ").trim();
}

/** Return a table, of which the next blocks may be parts, as tab-separated values. */
function textOfTable(table) {
  const rows = [...table.querySelectorAll("tr")];
  let part = table.closest(".block");
  while ((part = part.nextElementSibling)?.querySelector(".table.continued")) rows.push(...part.querySelectorAll("tbody tr"));
  return rows.map((row) => [...row.cells].map(textOfCell).join("\t")).join("\n");
}

export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text.replace(/\n$/, ""));
  } catch {
    notify(t.cannotCopy, { kind: "error" });
    return;
  }
  if (!button) {
    notify(t.copied);
    return;
  }
  const label = button.textContent;
  button.textContent = t.copied;
  setTimeout(() => {
    button.textContent = label;
  }, 1500);
}

/** Give the blocks of code and the tables below an element their heads. */
export function addHeads(element) {
  for (const block of element.querySelectorAll("pre[data-language]")) {
    block.tabIndex = 0;
    for (const part of block.querySelectorAll(".lines")) {
      part.style.setProperty("--lines", part.textContent.split("\n").length - 1);
    }
    addHead(block, "code-head", block.dataset.info, t.copy, ({ textContent }) => textContent);
  }
  for (const table of element.querySelectorAll(".table:not(.continued)")) {
    const frame = document.createElement("div"); // as wide as the table
    frame.className = "table-frame";
    table.replaceWith(frame);
    frame.append(table);
    addHead(table, "table-head", "", t.copyTable, textOfTable);
  }
}

/** Colour the blocks of code below an element. */
export function colourCode(element) {
  for (const block of element.querySelectorAll("pre[data-language]")) {
    // It is readable without colours.
    colour(block.querySelector("code"), block.dataset.language).catch(() => {});
  }
}
