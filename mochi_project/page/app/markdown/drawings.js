// Blocks of code that are diagrams and charts: drawn in a sandboxed frame, shown as pictures, in which nothing runs.

import { t } from "../texts.js";
import { theme } from "../views/theme.js";

const LOADING_MILLISECONDS = 60_000; // what draws takes at most to come
const DRAWING_MILLISECONDS = 20_000; // a drawing takes at most
const LONGEST = 50_000; // characters
const PADDING = 13; // of a drawing in its place, with the border

const VEGA = ["vendor/vega/vega.min.js", "vendor/vega-interpreter/vega-interpreter.min.js"];
const SCRIPTS = {
  mermaid: ["frame/draw.js", "vendor/mermaid/mermaid.min.js"],
  vega: ["frame/draw.js", ...VEGA],
  "vega-lite": ["frame/draw.js", ...VEGA, "vendor/vega-lite/vega-lite.min.js"],
};

const addressOf = (name) => new URL(`../../${name}`, import.meta.url);

async function read(name, signal) {
  const response = await fetch(addressOf(name), { signal });
  if (!response.ok) throw new Error(response.statusText);
  return response.text();
}

let frame = null; // promise of it
let sent = new Set(); // scripts that it has
let last = Promise.resolve(); // one after the other

function open() {
  frame ??= new Promise((resolve) => {
    const element = document.createElement("iframe");
    element.sandbox = "allow-scripts";
    element.src = addressOf("frame/index.html");
    element.className = "drawing-frame";
    element.title = t.drawing;
    element.tabIndex = -1;
    element.ariaHidden = "true";
    element.onload = () => resolve(element);
    document.body.append(element);
  });
  return frame;
}

/** Do an action, which gets a signal; after so long it is given up, with the frame and what is at work in it. */
async function bounded(milliseconds, action) {
  const abort = new AbortController();
  let timer;
  const end = new Promise((_, reject) => {
    timer = setTimeout(() => {
      abort.abort();
      frame.then((element) => element.remove());
      frame = null; // the next drawing opens a new one
      sent = new Set();
      reject(new Error(t.tooLongToDraw));
    }, milliseconds);
  });
  try {
    return await Promise.race([action(abort.signal), end]);
  } finally {
    clearTimeout(timer);
  }
}

async function draw(kind, source, width) {
  if (source.length > LONGEST) throw new Error(t.longSource(LONGEST));
  const { element, names, scripts } = await bounded(LOADING_MILLISECONDS, async (signal) => {
    const opened = await open();
    const missing = SCRIPTS[kind].filter((name) => !sent.has(name));
    const texts = await Promise.all(missing.map((name) => read(name, signal)));
    return { element: opened, names: missing, scripts: texts };
  });
  for (const name of names) sent.add(name);
  const { port1, port2 } = new MessageChannel();
  const { svg, problem } = await bounded(DRAWING_MILLISECONDS, () => new Promise((resolve) => {
    port1.onmessage = ({ data }) => resolve(data);
    const isDark = theme.peek() === "dark";
    element.contentWindow.postMessage({ scripts, kind, source, width, isDark }, "*", [port2]);
  })).finally(() => port1.close());
  if (problem !== undefined) throw new Error(problem);
  return svg;
}

/** The elements that a block has beside its source. */
function parts(block) {
  const place = block.nextElementSibling?.matches(".drawing") ? block.nextElementSibling : null;
  return { head: block.previousElementSibling, place };
}

function show(block, isSource) {
  const { head, place } = parts(block);
  block.hidden = !isSource;
  place.hidden = isSource;
  head.querySelector(".toggle").textContent = isSource ? t.showDrawing : t.showSource;
}

function addParts(block) {
  const place = document.createElement("div");
  place.className = "drawing";
  block.after(place);
  const toggle = document.createElement("button");
  toggle.type = "button";
  toggle.className = "quiet small toggle";
  toggle.addEventListener("click", () => show(block, block.hidden));
  block.previousElementSibling.querySelector("button").before(toggle);
  show(block, false);
  return place;
}

const isTried = (block) => block.nextElementSibling?.matches(".drawing, .drawing-problem");

const WIDEST = 640; // a chart that fills its place

/** Return how wide a chart is that fills the place of a block: wider ones would be shown with smaller letters. */
const widthFor = (block) => Math.min(WIDEST, block.parentElement.clientWidth - 2 * PADDING);

async function drawBlock(block) {
  const { language } = block.dataset;
  let content;
  try {
    const svg = await (last = last.catch(() => {}).then(() => draw(language, block.textContent, widthFor(block))));
    content = document.createElement("img");
    content.alt = t.drawingOf(language);
    content.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  } catch (error) {
    if (!block.isConnected || isTried(block)) return;
    const line = document.createElement("p");
    line.className = "drawing-problem";
    line.textContent = t.cannotDraw(error.message);
    block.after(line);
    return;
  }
  if (block.isConnected) (parts(block).place ?? addParts(block)).replaceChildren(content);
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    drawBlock(target);
  }
}, { rootMargin: "300px" });

/** Draw these blocks, each when it is about to be seen. */
export function showDrawings(blocks) {
  for (const block of blocks) if (!isTried(block)) seen.observe(block);
}

theme.subscribe(() => {
  for (const place of document.querySelectorAll(".drawing")) drawBlock(place.previousElementSibling);
});
