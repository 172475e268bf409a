// Draws a text as the page does, in an answer of its own that is scrolled to its end: `draw(text, pieces)`.

const aWhile = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

/**
 * Return what is seen of a text that arrives in so many pieces, the addresses of its links included, how
 * many blocks are shown as they were written, and whether all is (`isBroken`).
 */
async function draw(text, pieces) {
  const main = document.querySelector("script[type=module]").src;
  const { html, render } = await import(new URL("library.js", main));
  const { Markdown } = await import(new URL("views/markdown-view.js", main));
  const place = document.createElement("div");
  Object.assign(place.style, { height: "700px", overflow: "auto" });
  const answer = document.createElement("article");
  answer.className = "answer";
  place.append(answer);
  document.body.prepend(place);
  for (let piece = 1; piece <= pieces; piece += 1) {
    const isComplete = piece === pieces;
    const arrived = text.slice(0, Math.ceil((text.length * piece) / pieces));
    render(html`<${Markdown} text=${arrived} isComplete=${isComplete} />`, answer);
    place.scrollTop = place.scrollHeight;
    await aWhile(20);
  }
  while (answer.querySelector("div.block.plain, [data-formula]:not([data-shown])")) await aWhile(20);
  const isBroken = answer.querySelector(".markdown.plain") !== null;
  // HTML is shown so always.
  const plain = [...answer.querySelectorAll("p.plain")].filter((block) => !/^\s*</.test(block.textContent)).length;
  const links = [...answer.querySelectorAll("a")].map(({ href }) => href);
  const seen = [answer.textContent, ...links].join(" ");
  render(null, answer);
  place.remove();
  return { seen, plain, isBroken };
}
