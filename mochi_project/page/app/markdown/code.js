// Blocks of code: a head with the language and a button that copies, and colours.

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

let core = null;
const loaded = new Map();

async function highlighter(language) {
  core ??= import("../../vendor/highlight/core.min.js").then((module) => module.default);
  if (!loaded.has(language)) {
    loaded.set(
      language,
      Promise.all([core, import(`../../vendor/highlight/languages/${language}.min.js`)]).then(
        ([highlight, module]) => highlight.registerLanguage(language, module.default),
      ),
    );
  }
  await loaded.get(language);
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

function addHead(block) {
  const head = document.createElement("div");
  head.className = "code-head";
  const name = document.createElement("span");
  name.textContent = block.dataset.info;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet small";
  button.textContent = t.copy;
  // The block may be patched, and another one may come into its place.
  button.addEventListener("click", () => {
    const code = button.closest(".code-head").nextElementSibling;
    copy(code.textContent, button);
  });
  head.append(name, button);
  block.before(head);
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

/** Give the blocks of code below an element their heads. */
export function addCodeHeads(element) {
  for (const block of element.querySelectorAll("pre[data-language]")) {
    block.tabIndex = 0;
    for (const part of block.querySelectorAll(".lines")) {
      part.style.setProperty("--lines", part.textContent.split("\n").length - 1);
    }
    addHead(block);
  }
}

/** Colour the blocks of code below an element. */
export function colourCode(element) {
  for (const block of element.querySelectorAll("pre[data-language]")) {
    // It is readable without colours.
    colour(block.querySelector("code"), block.dataset.language).catch(() => {});
  }
}
