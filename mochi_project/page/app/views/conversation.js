// The messages of a session. Only the latest are loaded and drawn at first; more when one scrolls up.

import { answerKey, withoutLastAnswer } from "../conversation/history.js";
import { html, useEffect, useLayoutEffect, useRef, useState, useValue } from "../library.js";
import { t } from "../texts.js";
import { useEnd } from "./end.js";
import { Failure } from "./failure.js";
import { found, useFound } from "./found.js";
import { Icon } from "./icons.js";
import { Answer, Question } from "./messages.js";

const FIRST = 12; // messages that are drawn when a chat is opened; where they do not fill the view, more follow
const MORE = 20;
const LOADED = 40; // messages that are loaded at first

function Earlier({ count, show }) {
  const element = useRef(null);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => entry.isIntersecting && show(), {
      root: element.current.closest(".scroller"),
      rootMargin: "400px 0px 0px",
    });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [count]);
  return html`<button type="button" class="quiet wide" ref=${element} onClick=${show}>
    ${t.showEarlier(count)}</button>`;
}

function liveItem(run, items) {
  const question = items.at(-1);
  return {
    kind: "answer",
    key: answerKey(question?.key ?? "none"),
    question: question?.key,
    answer: run.answer,
    last: null,
    dropped: run.dropped,
  };
}

/** Return the key of the item before which the summary's line is; null: behind all, undefined: it is not shown. */
function placeOfSummary({ session, notLoaded }, items) {
  const through = session.history_summary?.through_message_id;
  const last = through ? session.messages.findIndex(({ message_id: id }) => id === through) : -1;
  if (last < 0) return undefined;
  return items.find(({ kind, index }) => kind === "question" && index > notLoaded + last)?.key ?? null;
}

/** Where a summary stands for what is above; its text can be opened. */
function SummaryLine({ chat, summary }) {
  const turn = useValue(chat.turnWindow);
  const isRead = summary.requested || turn?.summarised_messages > 0;
  return html`<details class="summary-line">
    <summary><span>${isRead ? t.summaryIsRead : t.summaryIsReady}</span></summary>
    <div class="summary-text" dir="auto">${summary.text}</div>
  </details>`;
}

export function Conversation({ chat, withModel, withoutTools }) {
  const { id } = chat;
  const loaded = useValue(chat.loaded);
  const { session, notLoaded, items: stored, variants } = loaded;
  const now = useValue(chat.live);
  const sent = useValue(chat.sending);
  const [, draw] = useState(0);
  const { scroller, content, isAtEnd, toEnd, leaveEnd } = useEnd(id);
  const first = useRef(null); // key of the first item that is drawn, which stays as others come below
  const seen = useRef(null); // what was first before more came above it, `{article, top, hadFocus}`
  useLayoutEffect(() => { // at the top, browsers would show what has come above
    if (!seen.current) return;
    const { article, top, hadFocus } = seen.current;
    seen.current = null;
    scroller.current.scrollTop += article.getBoundingClientRect().top - top;
    if (!hadFocus || content.current.querySelector(":scope > button")) return;
    article.tabIndex = -1; // the button that had the focus is gone
    article.focus({ preventScroll: true });
  });
  useEffect(() => {
    if (!sent) return;
    found.value = null; // to mark it takes time with each piece of an answer
    toEnd();
  }, [sent]);

  const kept = now && !sent ? withoutLastAnswer(stored) : stored;
  const items = now && !sent ? [...kept, liveItem(now.run, kept)] : kept;
  const least = useFound(chat, items, content, leaveEnd);
  const firstIndex = items.findIndex(({ key }) => key === first.current);
  const most = firstIndex >= 0 ? items.length - firstIndex : LOADED; // it may not be among what is loaded any more
  const start = Math.max(0, items.length - Math.max(FIRST, least, first.current ? most : 0));
  first.current = items[start]?.key;
  const shown = items.slice(start);
  const earlier = notLoaded + start;
  const isBusy = Boolean(now || sent);
  const variantsOf = (question) =>
    variants.find(({ message_id: message }) => message === question)?.variants ?? null;
  const summaryPlace = placeOfSummary(loaded, items);
  const showEarlier = async () => {
    if (notLoaded > 0 && start < MORE) await chat.showAll();
    if (!content.current) return; // another chat was opened meanwhile
    const article = content.current.querySelector(":scope > article");
    const hadFocus = document.activeElement === content.current.querySelector(":scope > button");
    seen.current = { article, top: article.getBoundingClientRect().top, hadFocus };
    const { items: all } = chat.loaded.peek();
    first.current = all[Math.max(0, all.findIndex(({ key }) => key === first.current) - MORE)].key;
    draw((count) => count + 1);
  };
  const line = summaryPlace !== undefined
    && html`<${SummaryLine} key="summary" chat=${chat} summary=${session.history_summary} />`;
  return html`<div class="scroller" ref=${scroller}>
    <div class="messages" ref=${content}>
      ${earlier > 0 && html`<${Earlier} count=${earlier} show=${showEarlier} />`}
      ${shown.flatMap((item) => item.kind === "question"
        ? [item.key === summaryPlace && line, html`<${Question} key=${item.key} message=${item.message} index=${item.index}
            chat=${chat} isBusy=${isBusy} />`]
        : [html`<${Answer} key=${item.key} answer=${item.answer} version=${item.answer.version}
            last=${item.last} dropped=${item.dropped ?? 0} chat=${chat} isBusy=${isBusy}
            isLast=${item === items.at(-1)} variants=${variantsOf(item.question)} />`])}
      ${summaryPlace === null && line}
      ${sent && html`<${Question} key="sent" index=${null} chat=${chat} isBusy=${true}
        message=${{ content: sent.message }} />`}
      ${!isBusy && html`<${Failure} chat=${chat} model=${session.model} isUnanswered=${items.at(-1)?.kind === "question"}
        withModel=${withModel} withoutTools=${withoutTools} />`}
    </div>
    ${!isAtEnd && html`<div class="to-end"><button type="button" aria-label=${t.toEnd} title=${t.toEnd}
      onClick=${toEnd}><${Icon} name="down" /></button></div>`}
  </div>`;
}
