// Markdown into HTML that is safe to show.
//
// What a model writes is never trusted: DOMPurify lets only these elements through, links lead only
// to the web and to mail, images are links, and HTML that is not on the list is shown as text.

import DOMPurify from "../../vendor/dompurify/purify.es.mjs";
import { Lexer, Marked, Tokenizer } from "../../vendor/marked/marked.esm.js";
import cjkFriendly from "../../vendor/marked-cjk-friendly/index.js";
import { t } from "../texts.js";
import { checkSpans, nested, timeChecks, withinBudget } from "./budget.js";
import { footnotes } from "./footnotes.js";
import { formulaBlock, formulas, isShort } from "./formulas.js";
import { partsOf, partsOfCode, startAt } from "./parts.js";

const WRITTEN = "br|sub|sup|kbd|mark|u|s|del|ins|b|i|em|strong|details|summary|hr";
const SAFE_TAGS = new RegExp(`^(?:\\s*</?(?:${WRITTEN})\\s*/?>)+\\s*$`, "i");

const PLAIN_ATTRIBUTES = [
  ..."class,dir,align,start,type,checked,disabled,tabindex,role".split(","),
  ..."aria-label,data-language,data-info,data-formula,data-display".split(","),
];

const RULES = {
  ALLOWED_TAGS: [
    ..."a,p,h1,h2,h3,h4,h5,h6,ul,ol,li,blockquote,pre,code,table,thead,tbody,tr,th,td".split(","),
    ...WRITTEN.split("|"), "span", "div", "input",
    "body", // of the document that is read: it would be cloned with all that is in it
  ],
  ALLOWED_ATTR: ["href", ...PLAIN_ATTRIBUTES],
  ADD_URI_SAFE_ATTR: PLAIN_ATTRIBUTES, // all others must be addresses as below
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_TRUSTED_TYPE: true,
};

const CHARACTERS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

export function escape(text) {
  return text.replace(/[&<>"']/g, (character) => CHARACTERS[character]);
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

const TAG_OR_LETTER = /<[^>]*>|&[#\w]+;|\p{L}/gu;

/**
 * Return the attribute of a block, from its HTML, whose first letter is written from right to left. With
 * `dir="auto"` the browser would look for it anew at each of a thousand elements of a paragraph.
 */
function direction(markup) {
  for (const [found] of markup.matchAll(TAG_OR_LETTER)) {
    if (!/^[<&]/.test(found)) return RIGHT_TO_LEFT.test(found) ? ' dir="rtl"' : "";
  }
  return "";
}

function isLink(address) {
  return RULES.ALLOWED_URI_REGEXP.test(address.trim());
}

const RELATIVE = /^(?!#|[a-z][a-z\d+.-]*:)/i;

/** Return a link. One without a server leads nowhere from here, and has its address beside it. */
function link(address, label) {
  const shown = escape(address.trim());
  if (isLink(address)) return `<a href="${shown}">${label}</a>`;
  return shown && RELATIVE.test(shown) && label !== shown ? `${label} (<code>${shown}</code>)` : label;
}

/** Return a block with an element's attributes around its HTML. */
function element(tag, attributes, markup) {
  return `<${tag}${attributes}${direction(markup)}>${markup}</${tag}>`;
}

const plain = (text) => `${element("p", ' class="plain"', escape(text))}\n`;

const renderer = {
  html({ text, block }) {
    if (SAFE_TAGS.test(text)) return text;
    return block ? plain(text.trimEnd()) : escape(text);
  },
  link({ href, tokens }) {
    return link(href, this.parser.parseInline(tokens));
  },
  image({ href, text }) {
    return link(href, escape(t.imageOf(text)));
  },
  checkbox({ checked }) {
    return `<input type="checkbox" disabled aria-label="${t.task(checked)}"${checked ? " checked" : ""}>`;
  },
  code({ text, lang }) {
    const info = escape((lang ?? "").trim());
    const language = info.split(/\s/)[0].toLowerCase();
    if (language === "math" && isShort(text)) return formulaBlock(text);
    const parts = partsOfCode(`${text}\n`).map(escape);
    const body = parts.length > 1 ? parts.map((part) => `<span class="lines">${part}</span>`).join("") : parts[0];
    return `<pre data-language="${language}" data-info="${info}"><code dir="ltr">${body}</code></pre>\n`;
  },
  list({ ordered, start, items }) {
    const tag = ordered ? "ol" : "ul";
    const first = ordered && start !== 1 ? ` start="${Number(start)}"` : "";
    const body = items.map((item) => this.listitem(item)).join("");
    return `${element(tag, first, `\n${body}`)}\n`;
  },
  blockquote({ tokens }) {
    return `${element("blockquote", "", `\n${this.parser.parse(tokens)}`)}\n`;
  },
  table({ header, rows, isContinued }) {
    const row = (cells, tag) =>
      `<tr>${cells
        .map((cell) => {
          const aligned = cell.align ? ` align="${cell.align}"` : "";
          return element(tag, aligned, this.parser.parseInline(cell.tokens));
        })
        .join("")}</tr>`;
    const head = row(header, "th");
    const body = rows.map((cells) => row(cells, "td")).join("");
    const table = element("table", "", `<thead>${head}</thead><tbody>${body}</tbody>`);
    return `<div class="table${isContinued ? " continued" : ""}" role="region" tabindex="0" aria-label="${t.table}">${table}</div>\n`;
  },
  paragraph({ tokens }) {
    return `${element("p", "", this.parser.parseInline(tokens))}\n`;
  },
  heading({ depth, tokens }) {
    const level = Math.min(depth + 1, 6); // below the headings of the page
    return `${element(`h${level}`, ` class="level-${depth}"`, this.parser.parseInline(tokens))}\n`;
  },
};

/** Keep what a row of a table has beyond the last column, in its last cell. */
function keepSurplus({ raw, header, rows }, lexer) {
  const lines = raw.split("\n").slice(2);
  for (const [index, cells] of rows.entries()) {
    const parts = lines[index].trim().replace(/^\|/, "").split(/(?<!\\)\|/);
    if (parts.at(-1).trim() === "") parts.pop();
    if (parts.length <= header.length) continue;
    const last = cells.at(-1);
    last.text = parts.slice(header.length - 1).join("|").trim().replaceAll("\\|", "|");
    last.tokens = lexer.inline(last.text);
  }
}

const marked = new Marked({
  gfm: true,
  breaks: true, // a line of its own stays one: an address, a verse
  renderer,
  extensions: [...timeChecks, ...formulas, ...footnotes],
});
marked.use(cjkFriendly());
marked.use({
  tokenizer: {
    blockquote(source) {
      return nested(() => Tokenizer.prototype.blockquote.call(this, source));
    },
    list(source) {
      return nested(() => Tokenizer.prototype.list.call(this, source));
    },
    tag(source) {
      const token = Tokenizer.prototype.tag.call(this, source);
      this.lexer.state.inRawBlock = false; // what is behind `<script>` is text as well
      return token;
    },
    table(source) {
      const token = Tokenizer.prototype.table.call(this, source);
      if (token) keepSurplus(token, this.lexer);
      return token;
    },
    // Only `~~` strikes out: `20~30` is a range. False: as marked does it.
    del: (source) => (source.startsWith("~~") ? false : undefined),
  },
});

DOMPurify.setConfig(RULES); // once: to read the rules takes as long as to make a short text safe

/** Return safe HTML of text that is HTML already, such as highlighted code. */
export const sanitize = (markup) => DOMPurify.sanitize(markup);

class CheckedLexer extends Lexer {
  inlineTokens(source, tokens) {
    checkSpans(source);
    return super.inlineTokens(source, tokens);
  }
}

const MOST_TAGS = 6_000; // of a block: what is laid out in one step
const TAGS_OF_FORMULA = 20; // when it is shown as one

const tagsOf = (markup) => markup.split("<").length + TAGS_OF_FORMULA * (markup.split("data-formula").length - 1);

/** Return the safe HTML of a block, which may be a part; of one that takes too long, its plain text. */
function render({ raw, head, start }, links) {
  const markup = withinBudget(() => {
    const lexer = new CheckedLexer(marked.defaults);
    lexer.tokens.links = links;
    const tokens = lexer.lex(head + raw);
    if (start !== null) startAt(tokens, start);
    if (head) tokens[0].isContinued = true;
    return marked.parser(tokens);
  });
  return sanitize(markup === null || tagsOf(markup) > MOST_TAGS ? plain(head + raw) : markup);
}

const MOST_OF_WORD = 100; // characters that are kept together where a text must be cut

/**
 * Return the top-level blocks of a text, large ones in parts, and the addresses of its links. `head` is what
 * is read in front of the text, which goes on with a table; `start` is the number that it goes on with in a list.
 */
function split(text, { head, start }) {
  const lexer = new Lexer(marked.defaults);
  const tokens = withinBudget(() => lexer.blockTokens(head + text));
  if (tokens === null) {
    // At the end of a paragraph, a line or a word, else where what may be a word begins.
    const end = text.search(/\n[ \t]*\n/) + 1 || text.lastIndexOf("\n") + 1 || text.lastIndexOf(" ") + 1
      || text.length - text.slice(-MOST_OF_WORD).match(/(?![\udc00-\udfff])[\p{L}\p{M}\p{N}\p{Cs}]*$/u)[0].length || text.length;
    return { blocks: [{ raw: text.slice(0, end), head, start }], sure: 1, links: {} };
  }
  if (start !== null) startAt(tokens, start);
  const blocks = [];
  let parts = []; // of the last one
  for (const token of tokens) {
    if (token.type === "space" && blocks.length > 0) blocks.at(-1).raw += token.raw;
    else blocks.push(...(parts = partsOf(token).filter(({ raw }) => raw))); // else drawing would never end
  }
  if (blocks.length > 0) Object.assign(blocks[0], { raw: blocks[0].raw.slice(head.length), head, start });
  // The last two may still change: a line below makes a heading or a table of a text.
  const sure = Math.max(0, blocks.length - (parts.length > 1 ? 1 : 2));
  return { blocks, sure, links: lexer.tokens.links };
}

const PIECE = 2_000; // characters of a long text that are split at a time: each block is looked for in all of them
const LEAST_MILLISECONDS = 20; // of a drawing; the rest is drawn in the next one
const MOST_MILLISECONDS = 50; // of it: keys and clicks wait so long

const WHOLE = { head: "", start: null }; // as of a block in one part

/** A text that may grow: its blocks are kept when what follows cannot change them any more. */
export class MarkdownText {
  constructor() {
    this.text = "";
    this.links = {};
    this.settled = []; // HTML of blocks
    this.settledLength = 0; // characters of what they are made of
    this.next = WHOLE; // how the others go on
    this.begun = Infinity; // when the last drawing began; never yet
    this.drawn = new Map(); // HTML of the blocks that may still change, by what is written
  }

  /**
   * Return `{blocks, rest}`: safe HTML, and the text that is drawn next time because it takes long.
   *
   * Most blocks of the beginning are not made anew when the text has grown.
   */
  blocks(text, { isComplete, end = this.endOfDrawing() }) {
    const normal = text.replace(/\r\n?/g, "\n");
    if (!normal.startsWith(this.text)) Object.assign(this, new MarkdownText());
    this.text = normal;
    const unsettled = new Map();
    const begin = this.settledLength;
    let position = begin;
    // At least one block is drawn: finding it may take longer.
    const isOver = () => position > begin && performance.now() >= end;
    let piece = PIECE;
    while (position < normal.length && !isOver()) {
      const isLast = position + piece >= normal.length;
      const { blocks, sure, links } = split(normal.slice(position, position + piece), this.next);
      if (Object.keys(links).some((label) => !(label in this.links))) {
        // What is above may have links that lead there.
        Object.assign(this, new MarkdownText(), { links: { ...this.links, ...links } });
        return this.blocks(text, { isComplete, end });
      }
      const settling = isLast && isComplete ? blocks.length : sure;
      if (settling === 0 && !isLast) piece *= 2; // a block that is longer
      for (const [index, block] of blocks.slice(0, isLast ? undefined : sure).entries()) {
        if (isOver()) break;
        const key = [block.start, block.head, block.raw].join();
        const markup = this.drawn.get(key) ?? render(block, this.links);
        position += block.raw.length;
        if (index >= settling) unsettled.set(key, markup);
        else {
          this.settled.push(markup);
          this.settledLength = position;
          this.next = blocks[index + 1] ?? WHOLE;
        }
      }
    }
    this.drawn = unsettled;
    return { blocks: [...this.settled, ...unsettled.values()], rest: normal.slice(position) };
  }

  endOfDrawing() {
    const begun = performance.now();
    // Half of what the last one took with its layout, which takes long where much is drawn already.
    const share = Math.max(LEAST_MILLISECONDS, (begun - this.begun) / 2);
    this.begun = begun;
    return begun + Math.min(share, MOST_MILLISECONDS);
  }
}
