// Markdown into HTML that is safe to show.
//
// What a model writes is never trusted: DOMPurify lets only these elements through, links lead only
// to the web and to mail, images are links, and HTML that is not on the list is shown as text.

import DOMPurify from "../../vendor/dompurify/purify.es.mjs";
import { Marked } from "../../vendor/marked/marked.esm.js";
import { t } from "../texts.js";
import { formulas } from "./formulas.js";

const WRITTEN = "br|sub|sup|kbd|mark|u|s|del|ins|b|i|em|strong|details|summary|hr";
const SAFE_TAGS = new RegExp(`^(?:\\s*</?(?:${WRITTEN})\\s*/?>)+\\s*$`, "i");

const PLAIN_ATTRIBUTES = [
  ..."class,dir,align,start,type,checked,disabled,tabindex,role".split(","),
  ..."aria-label,data-language,data-formula,data-display".split(","),
];

const RULES = {
  ALLOWED_TAGS: [
    ..."a,p,h1,h2,h3,h4,h5,h6,ul,ol,li,blockquote,pre,code,table,thead,tbody,tr,th,td".split(","),
    ...WRITTEN.split("|"), "span", "div", "input",
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

/** Return the attribute of a block whose first letter is written from right to left. */
function direction({ raw }) {
  const first = /\p{L}/u.exec(raw);
  return first && RIGHT_TO_LEFT.test(first[0]) ? ' dir="rtl"' : "";
}

function isLink(address) {
  return RULES.ALLOWED_URI_REGEXP.test(address.trim());
}

function link(address, label) {
  return isLink(address) ? `<a href="${escape(address.trim())}">${label}</a>` : label;
}

const renderer = {
  html({ text }) {
    return SAFE_TAGS.test(text) ? text : escape(text);
  },
  link({ href, tokens }) {
    return link(href, this.parser.parseInline(tokens));
  },
  image({ href, text }) {
    return link(href, escape(t.imageOf(text)));
  },
  code({ text, lang }) {
    const language = escape((lang ?? "").trim().split(/\s/)[0].toLowerCase());
    return `<pre data-language="${language}"><code dir="ltr">${escape(text)}\n</code></pre>\n`;
  },
  list(token) {
    const { ordered, start, items } = token;
    const tag = ordered ? "ol" : "ul";
    const first = ordered && start !== 1 ? ` start="${Number(start)}"` : "";
    const body = items.map((item) => this.listitem(item)).join("");
    return `<${tag}${first}${direction(token)}>\n${body}</${tag}>\n`;
  },
  blockquote(token) {
    return `<blockquote${direction(token)}>\n${this.parser.parse(token.tokens)}</blockquote>\n`;
  },
  table(token) {
    const row = (cells, tag) =>
      `<tr>${cells
        .map(({ tokens, align }) => {
          const aligned = align ? ` align="${align}"` : "";
          return `<${tag}${aligned} dir="auto">${this.parser.parseInline(tokens)}</${tag}>`;
        })
        .join("")}</tr>`;
    const head = row(token.header, "th");
    const body = token.rows.map((cells) => row(cells, "td")).join("");
    return `<div class="table" role="region" tabindex="0" aria-label="${t.table}"><table${direction(token)}><thead>${head}</thead><tbody>${body}</tbody></table></div>\n`;
  },
  paragraph({ tokens }) {
    return `<p dir="auto">${this.parser.parseInline(tokens)}</p>\n`;
  },
  heading({ tokens, depth }) {
    const level = Math.min(depth + 1, 6); // below the headings of the page
    return `<h${level} dir="auto" class="level-${depth}">${this.parser.parseInline(tokens)}</h${level}>\n`;
  },
};

const marked = new Marked({ gfm: true, breaks: false, renderer, extensions: formulas });

function trusted(tokens) {
  return DOMPurify.sanitize(marked.parser(tokens), RULES);
}

/** Return safe HTML of text that is HTML already, such as highlighted code. */
export const sanitize = (markup) => DOMPurify.sanitize(markup, RULES);

/** A text that grows: its blocks are kept when what follows cannot change them any more. */
export class MarkdownText {
  constructor() {
    this.text = "";
    this.settled = [];
    this.settledLength = 0;
  }

  /** Return the blocks of a text, as safe HTML; most of those of its beginning are not made anew. */
  blocks(text, { isComplete }) {
    const normal = text.replace(/\r\n?/g, "\n");
    if (isComplete || !normal.startsWith(this.text)) {
      this.settled = [];
      this.settledLength = 0;
    }
    this.text = normal;
    const tokens = marked.lexer(normal.slice(this.settledLength));
    const links = tokens.links;
    const groups = [];
    for (const token of tokens) {
      if (token.type === "space" && groups.length > 0) groups.at(-1).raw += token.raw;
      else groups.push({ tokens: [token], raw: token.raw });
    }
    const rest = groups.map(({ tokens: own, raw }) => {
      own.links = links;
      return { html: trusted(own), raw };
    });
    const all = [...this.settled, ...rest.map(({ html }) => html)];
    if (!isComplete) {
      // The last two blocks may still change: a line below makes a heading or a table of a text.
      for (const { html, raw } of rest.slice(0, -2)) {
        this.settled.push(html);
        this.settledLength += raw.length;
      }
    }
    return all;
  }
}
