// What a search has found in the chat that is opened from it: scrolled to, and marked.

import { html, signal, useEffect, useLayoutEffect, useMemo, useValue } from "../library.js";
import { title } from "../state/sessions.js";

const MOST_MARKS = 1000;

/** `{id, words}` of the chat that was opened from the search, or null. */
export const found = signal(null);

/** Return the words that a search has found in a chat, of which `snippet` is a passage. */
function wordsOf({ snippet }) {
  return [...new Set((snippet ?? []).filter(({ match }) => match).map(({ text }) => text.toLowerCase()))];
}

/** Remember what the search has found in a chat. */
export function remember(session) {
  const words = wordsOf(session);
  found.value = words.length > 0 ? { id: session.session_id, words } : null;
}

const patternOf = (words) =>
  new RegExp(`(${words.map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|")})`, "giu");

/** Return a passage with its words marked. */
export const marked = (snippet) => snippet.map(({ text, match }) => (match ? html`<mark>${text}</mark>` : text));

/** Return the title of a chat, with the words marked that a search has found. */
export function markedTitle(session) {
  const words = wordsOf(session);
  if (words.length === 0) return title(session);
  return marked(title(session).split(patternOf(words)).map((text, index) => ({ text, match: index % 2 === 1 })));
}

/** Return the index of the first message that has the most of these words, or -1. */
function placeOf(words, messages) {
  let most = 0;
  let place = -1;
  messages.forEach(({ content }, index) => {
    const text = `${content}`.toLowerCase();
    const count = words.filter((word) => text.includes(word)).length;
    if (count > most) [most, place] = [count, index];
  });
  return place;
}

/** Return which of a chat's items shows a message. */
function itemOf(place, items) {
  const question = items.findLastIndex(({ kind, index }) => kind === "question" && index <= place);
  return items[question]?.index === place ? question : Math.min(question + 1, items.length - 1);
}

function mark(root, words) {
  const pattern = patternOf(words);
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const ranges = [];
  while (texts.nextNode() && ranges.length < MOST_MARKS) {
    const node = texts.currentNode;
    for (const { index, 0: { length } } of node.data.matchAll(pattern)) {
      const range = new Range();
      range.setStart(node, index);
      range.setEnd(node, index + length);
      ranges.push(range);
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

/**
 * Scroll to what was found in a chat, and mark it for as long as the chat is open and nothing is sent. `content` is what
 * its items are drawn in. Return how many of the last items must be drawn.
 */
export function useFound(chat, items, content, leaveEnd) {
  const { id } = chat;
  const { session, notLoaded } = useValue(chat.loaded);
  const now = useValue(found);
  const words = now?.id === id ? now.words : [];
  const isPartial = notLoaded > 0 && words.length > 0;
  useEffect(() => {
    if (isPartial) chat.showAll();
  }, [isPartial, now]);
  // Without words, reading a long chat would take as long as drawing it.
  const place = useMemo(() => (isPartial || words.length === 0 ? -1 : placeOf(words, session.messages)), [now, session]);
  const needed = place < 0 ? 0 : items.length - itemOf(place, items);
  useLayoutEffect(() => {
    if (place < 0) return undefined;
    const root = content.current;
    leaveEnd();
    [...root.querySelectorAll(":scope > article")].at(-needed)?.scrollIntoView();
    if (!CSS.highlights) return undefined;
    const draw = () => mark(root, words);
    draw();
    const observer = new MutationObserver(draw); // texts are drawn in pieces
    observer.observe(root, { childList: true, subtree: true });
    return () => {
      observer.disconnect();
      CSS.highlights.delete("found");
    };
  }, [now, id, place >= 0]);
  return needed;
}
