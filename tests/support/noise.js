// Text of the kinds that models write when they go wrong, made of a seed: `noise(seed, length)`.
//
// It has words such as w17x, each once, where Markdown shows what is written: see `missing(text, seen)`.

function noise(seed, length) {
  let state = (seed + 1) * 0x9e3779b9;
  const random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) / 4294967296;
  };
  const upTo = (most) => 1 + Math.floor(random() * most);
  const rarely = (usual, most) => (random() < 0.03 ? upTo(most) : upTo(usual));
  const one = (choices) => choices[Math.floor(random() * choices.length)];
  const repeat = (count, make) => Array.from({ length: count }, make).join("");
  let words = 0;
  const word = () => `w${(words += 1)}x`;
  const text = (most = 8) => Array.from({ length: upTo(most) }, word).join(" ");

  const MARKS = [..."*_~`$[]()<>#|\\!&^=+-:{}\"'.,/@%"];
  const OTHERS = [
    "中文，“强调”。", "日本語（テスト）", "한국어", "עברית", "العربية", "\u202e", "\u200b", "👩‍👩‍👧", "e\u0301\u0327",
    "\ud800", "\udc00", "\u0000", "\ufffe", "\t", "\u00a0", "\r\n", "\u2028", "&amp;", "&#0;", "&nbsp;",
  ];
  const HTML = [
    "<div>", "</div>", "<script>", "</script>", "<!--", "-->", "<details>", "<br>", "<b>", "</b>", "<img src=x onerror=y>",
    "<![CDATA[", "]]>", "<?php", "<svg><style>", "<think>", "</think>", "<a href='", "<math>", "<template>", "<!DOCTYPE",
  ];
  const LANGUAGES = ["", "python", "js", "json", "html", "math", "mermaid", "vega-lite", "unknown", "c++"];
  const inlines = [
    () => `**${text()}**`, () => `*${text()}*`, () => `***${text()}`, () => `__${text()}`, () => `~~${text()}~~`,
    () => `\`${text()}\``, () => `\`\`${text()}`, () => `[${text()}](https://a.example/)`, () => `[${text()}](`,
    () => `![${text()}](x.png)`, () => `[${word()}][${upTo(9)}]`, () => `[^${upTo(9)}]`, () => `$${text()}$`,
    () => `$${upTo(99)}`, () => `\\(${text()}\\)`, () => `$$${text()}$$`, () => one(HTML) + text(), () => one(OTHERS) + word(),
    () => `https://a.example/${word()}`, () => `${text()}  \n`, () => repeat(rarely(6, 900), () => one(MARKS)),
    () => one(MARKS).repeat(rarely(9, 4000)), () => (one(MARKS) + one(MARKS)).repeat(rarely(9, 3000)),
    () => repeat(rarely(5, 2000), () => one(["中", "文", "“", "”", "、", "*", "**"])),
    () => one(["a", "é", "中", "א", "👩"]).repeat(rarely(30, 9000)), () => `$${"{".repeat(rarely(5, 400))}${word()}$`,
    () => `$${"\\frac{1}{".repeat(rarely(3, 60))}${word()}`, () => "[".repeat(rarely(5, 900)) + "]".repeat(rarely(5, 900)),
    () => `**${one(["，", "。", "「"])}${text()}**`, () => text(30), () => text(30), () => text(60),
  ];
  const line = () => repeat(upTo(5), () => `${one(inlines)()} `);
  const cells = (count) => `|${repeat(count, () => ` ${one(inlines)().replace(/[\n|]/g, "")} |`)}\n`;
  const blocks = [
    () => `${line()}\n\n`, () => `${line()}\n`, () => `${line()}\n`, () => `${"#".repeat(upTo(7))} ${line()}\n`,
    () => repeat(rarely(6, 200), () => `- ${line()}\n`), () => repeat(rarely(6, 200), () => `${upTo(99)}. ${line()}\n`),
    () => repeat(rarely(8, 120), (_, depth) => `${"  ".repeat(depth)}- ${word()}\n`),
    () => repeat(rarely(5, 60), () => `${"> ".repeat(upTo(6))}${line()}\n`), () => `${">".repeat(rarely(5, 3000))}${text()}\n`,
    () => `${"- ".repeat(rarely(4, 500))}${text()}\n`, () => `- [${one([" ", "x", "X"])}] ${line()}\n`,
    () => `\`\`\`${one(LANGUAGES)}\n${repeat(rarely(6, 200), () => `${text()}\n`)}\`\`\`\n`,
    () => `${one(["```", "~~~", "````"])}${one(LANGUAGES)}\n${text()}\n`, () => `    ${text()}\n`,
    () => { const count = rarely(5, 60); return cells(count) + `|${"---|".repeat(count)}\n` + repeat(rarely(6, 150), () => cells(count)); },
    () => cells(upTo(5)), () => `|${"---|".repeat(upTo(5))}\n`, () => `${one(["---", "===", "***"])}\n`,
    () => `$$\n${text()}\n$$\n`, () => `$$\n${text()}\n`, () => `\\[${text()}\\]\n`, () => `\\begin{pmatrix}${text()}\\end{pmatrix}\n`,
    () => `[${upTo(9)}]: https://a.example/${upTo(9)}\n`, () => `[^${upTo(9)}]: ${text()}\n`, () => `${one(HTML)}${text()}\n`,
    () => "\n".repeat(rarely(3, 500)), () => " ".repeat(rarely(5, 3000)), () => one(OTHERS).repeat(rarely(4, 900)),
  ];
  // One text in five is of few kinds: what repeats is what takes long.
  const kinds = random() < 0.2 ? Array.from({ length: 2 }, () => one(blocks)) : blocks;
  let made = "";
  while (made.length < length) made += one(kinds)();
  return made.slice(0, length);
}

/** Return the words of a text that are not seen, without those of addresses. */
function missing(text, seen) {
  const words = new Set(seen.match(/w\d+x/g));
  return text.replace(/\]\([^)]*\)/g, "").match(/w\d+x/g)?.filter((word) => !words.has(word)) ?? [];
}
