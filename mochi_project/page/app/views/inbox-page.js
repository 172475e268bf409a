// The inbox: all calls that wait for a person, in all sessions.

import { get, part } from "../api.js";
import { html, useEffect, useState, useValue } from "../library.js";
import { address } from "../router.js";
import { confirmations } from "../state/inbox.js";
import { areOn, canNotify, toggle } from "../state/notifications.js";
import { sessions, title } from "../state/sessions.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { Decision } from "./decision.js";
import { Elicitation } from "./elicitation.js";
import { Icon } from "./icons.js";
import { PageFrame } from "./page-frame.js";
import { Empty, Moment } from "./parts.js";

/** A link to the conversation in which a call waits, by its title. */
function Conversation({ id }) {
  const listed = useValue(sessions).find(({ session_id: each }) => each === id);
  const [read, setRead] = useState(null);
  const isMissing = !listed;
  useEffect(() => {
    if (!isMissing) return;
    get(`sessions/${part(id)}?turns=1`).then((session) => {
      const question = session.messages.find(({ role }) => role === "user")?.content;
      setRead({ title: session.title, preview: question });
    }, () => {}); // the link leads there without a title
  }, [isMissing]);
  const session = listed ?? read;
  const name = session ? title(session) : id;
  return html`<a class="conversation" dir="auto" href=${address("chat", id)}>
    ${t.conversationOf(visible(name.slice(0, 120)))}</a>`;
}

function Entry({ confirmation }) {
  const { tool_name: tool, agent_name: agent, session_id: session } = confirmation;
  return html`<li class="card call asking">
    <div class="card-head">
      <${Icon} name="tool" />
      <code class="name"><bdi>${visible(tool)}</bdi></code>
      ${agent && html`<span class="tag">${t.agentNamed(visible(agent))}</span>`}
      <span class="grow"></span>
      <${Moment} at=${confirmation.asked_at} />
    </div>
    <div class="card-body">
      <${Conversation} id=${session} />
      ${confirmation.elicitation
        ? html`<${Elicitation} request=${confirmation} />`
        : html`<${Decision} confirmation=${confirmation} />`}
    </div>
  </li>`;
}

const EXAMPLE = `write_file {"path": "notes/plan.md"}`;

export function InboxPage({ openSidebar }) {
  const waiting = useValue(confirmations);
  const isTold = useValue(areOn);
  return html`<${PageFrame} title=${t.page.inbox} openSidebar=${openSidebar} actions=${canNotify && html`<button
      type="button" class="toggle" aria-pressed=${`${isTold}`} title=${t.notifiesOf} onClick=${toggle}>${t.notifications}</button>`}>
    ${waiting.length === 0 && html`<${Empty} text=${t.inboxIsEmpty} example=${EXAMPLE}>
      <a class="button" href=${address("")}>${t.newChat}</a></${Empty}>`}
    <ul class="plain">
      ${waiting.map((confirmation) => html`<${Entry} key=${confirmation.confirmation_id}
        confirmation=${confirmation} />`)}
    </ul>
  </${PageFrame}>`;
}
