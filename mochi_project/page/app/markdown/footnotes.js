// Footnotes: `[^1]` in the text, and `[^1]: what it says` in a block of its own.

const MARK = /^\[\^([^\]\s[]{1,40})\]/;
const NOTE = /^ {0,3}\[\^([^\]\s[]{1,40})\]:[ \t]*([^\n]*(?:\n(?![ \t]*(?:\n|$)| {0,3}\[\^[^\]\s[]{1,40}\]:)[^\n]+)*)(?:\n+|$)/;

/** Return where a line begins that may be a block of its own; marked asks for the text behind its first character. */
export function startOfLine(source, pattern) {
  const index = source.search(pattern);
  return index < 0 ? undefined : index + 1;
}

export const footnotes = [
  {
    name: "footnote",
    level: "block",
    start: (source) => startOfLine(source, /\n {0,3}\[\^/),
    tokenizer(source) {
      const match = NOTE.exec(source);
      if (!match) return undefined;
      const [raw, label, text] = match;
      const mark = { type: "footnoteMark", raw: label, label };
      const token = { type: "footnote", raw, mark, tokens: [] };
      this.lexer.inline(text, token.tokens);
      return token;
    },
    renderer({ mark, tokens }) {
      return `<p class="footnote" dir="auto">${this.parser.parseInline([mark])} ${this.parser.parseInline(tokens)}</p>\n`;
    },
  },
  {
    name: "footnoteMark",
    level: "inline",
    start: (source) => source.match(/\[\^/)?.index,
    tokenizer(source) {
      const match = MARK.exec(source);
      return match ? { type: "footnoteMark", raw: match[0], label: match[1] } : undefined;
    },
    renderer: ({ label }) => `<sup class="footnote-mark">${label.replace(/[&<>"]/g, "")}</sup>`,
  },
];
