// The inbox: all calls that wait for a person, in all sessions.

import { html, useValue } from "../library.js";
import { address } from "../router.js";
import { confirmations } from "../state/inbox.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { Decision } from "./call-card.js";
import { Elicitation } from "./elicitation.js";
import { Icon } from "./icons.js";
import { PageFrame } from "./page-frame.js";

function Entry({ confirmation }) {
  const { tool_name: tool, agent_name: agent, session_id: session } = confirmation;
  const since = new Date(confirmation.asked_at).toLocaleTimeString();
  return html`<li class="card call asking">
    <div class="card-head">
      <${Icon} name="tool" />
      <code class="name"><bdi>${visible(tool)}</bdi></code>
      ${agent && html`<span class="tag">${t.agentNamed(visible(agent))}</span>`}
      <span class="grow"></span>
      <time datetime=${confirmation.asked_at}>${since}</time>
      <a href=${address("chat", session)}>${t.toConversation}</a>
    </div>
    <div class="card-body">
      ${confirmation.elicitation
        ? html`<${Elicitation} request=${confirmation} />`
        : html`<${Decision} confirmation=${confirmation} />`}
    </div>
  </li>`;
}

export function InboxPage({ openSidebar }) {
  const waiting = useValue(confirmations);
  return html`<${PageFrame} title=${t.page.inbox} openSidebar=${openSidebar}>
    ${waiting.length === 0 && html`<p class="hint">${t.inboxIsEmpty}</p>`}
    <ul class="plain">
      ${waiting.map((confirmation) => html`<${Entry} key=${confirmation.confirmation_id}
        confirmation=${confirmation} />`)}
    </ul>
  </${PageFrame}>`;
}
