// The messages of a session. Only the latest are drawn at first; more when one scrolls up.

import { answerKey, withoutLastAnswer } from "../conversation/history.js";
import { html, useEffect, useLayoutEffect, useRef, useState, useValue } from "../library.js";
import { chat, live, sending } from "../state/chat.js";
import { t } from "../texts.js";
import { Icon } from "./icons.js";
import { Answer, Question } from "./messages.js";

const WINDOW = 40;
const NEAR = 60; // pixels from the end that count as its end

/** Keep the end in view while it is in view; return `{scroller, content, isAtEnd, toEnd}`. */
function useEnd(session) {
  const scroller = useRef(null);
  const content = useRef(null);
  const sticks = useRef(true);
  const [isAtEnd, setAtEnd] = useState(true);
  const toEnd = () => {
    sticks.current = true;
    scroller.current.scrollTop = scroller.current.scrollHeight;
  };
  useLayoutEffect(toEnd, [session]);
  useEffect(() => {
    const element = scroller.current;
    let height = 0;
    const observer = new ResizeObserver(() => {
      if (sticks.current) element.scrollTop = element.scrollHeight;
      height = element.scrollHeight;
    });
    observer.observe(content.current);
    observer.observe(element);
    const onScroll = () => {
      // A scroll that is not the person's own comes with another height.
      if (element.scrollHeight !== height && sticks.current) return;
      const isNear = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
      sticks.current = isNear;
      setAtEnd(isNear);
    };
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", onScroll);
    };
  }, []);
  return { scroller, content, isAtEnd, toEnd };
}

function Earlier({ count, show }) {
  const element = useRef(null);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => entry.isIntersecting && show(), {
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

export function Conversation() {
  const { id, items: stored, variants } = useValue(chat);
  const now = useValue(live);
  const sent = useValue(sending);
  const [limit, setLimit] = useState(WINDOW);
  const { scroller, content, isAtEnd, toEnd } = useEnd(id);
  useEffect(() => setLimit(WINDOW), [id]);
  useEffect(() => {
    if (sent) toEnd();
  }, [sent]);

  const kept = now && !sent ? withoutLastAnswer(stored) : stored;
  const items = now && !sent ? [...kept, liveItem(now.run, kept)] : kept;
  const shown = items.slice(-limit);
  const isBusy = Boolean(now || sent);
  const variantsOf = (question) =>
    variants.find(({ message_id: message }) => message === question)?.variants ?? null;
  return html`<div class="scroller" ref=${scroller}>
    <div class="messages" ref=${content}>
      ${items.length > limit && html`<${Earlier} count=${items.length - limit}
        show=${() => setLimit(limit + WINDOW)} />`}
      ${shown.map((item) => item.kind === "question"
        ? html`<${Question} key=${item.key} message=${item.message} index=${item.index}
            sessionId=${id} isBusy=${isBusy} />`
        : html`<${Answer} key=${item.key} answer=${item.answer} version=${item.answer.version}
            last=${item.last} dropped=${item.dropped ?? 0} sessionId=${id} isBusy=${isBusy}
            isLast=${item === items.at(-1)} variants=${variantsOf(item.question)} />`)}
      ${sent && html`<${Question} key="sent" index=${null} sessionId=${id} isBusy=${true}
        message=${{ content: sent.message }} />`}
    </div>
    ${!isAtEnd && html`<button type="button" class="to-end" aria-label=${t.toEnd} title=${t.toEnd}
      onClick=${toEnd}><${Icon} name="down" /></button>`}
  </div>`;
}
