// The tools of a chat, at its message box.

import { html, useDismiss, useEffect, useRef, useState, useValue } from "../library.js";
import { tools } from "../state/catalogue.js";
import { t } from "../texts.js";
import { isTouched } from "./focus.js";
import { Icon } from "./icons.js";
import { useFresh } from "./parts.js";
import { chosenTools, ToolList, ToolModeField } from "./tool-list.js";

/** What is chosen from; for a model that cannot call tools, only once the system prompt describes them. */
function Choice({ model, settings, set }) {
  const field = useRef(null);
  const element = useRef(null);
  const isDescribed = settings.tool_mode === "prompted";
  const isUnable = model !== null && !model.capabilities.includes("tools");
  const { loaded } = useFresh(tools);
  useEffect(() => {
    const first = isTouched ? element.current.querySelector(".choices") : field.current;
    (first ?? element.current.querySelector("input:enabled"))?.focus();
  }, [loaded]);
  return html`<div class="tool-menu" role="group" aria-label=${t.toolsOfChat} ref=${element}>
    ${isUnable && html`<p class=${isDescribed ? "hint" : "warning"}>${t.cannotCallTools(model.name)}</p>
      <${ToolModeField} value=${settings.tool_mode} onChange=${(mode) => set({ tool_mode: mode })} />`}
    <${ToolList} settings=${settings} disabled=${isUnable && !isDescribed} onChange=${set} field=${field} />
  </div>`;
}

/** `settings` are those of tools; `set(changes)` keeps some of them. */
export function ToolMenu({ model, settings, set }) {
  const { value } = useValue(tools.state);
  const [isOpen, setOpen] = useState(false);
  const element = useRef(null);
  const close = () => {
    setOpen(false);
    element.current.querySelector("button").focus();
  };
  useDismiss(element, isOpen, ({ type }) => (type === "keydown" ? close() : setOpen(false)));
  const count = chosenTools(settings, value).length;
  const isUnable = model !== null && !model.capabilities.includes("tools") && settings.tool_mode !== "prompted";
  return html`<div class="tools-at-box" ref=${element}>
    <button type="button" class="toggle ${isUnable ? "unable" : ""}" aria-expanded=${`${isOpen}`}
      aria-label=${t.toolsChosen(count)} title=${isUnable ? t.cannotCallTools(model.name) : null}
      onClick=${() => setOpen(!isOpen)}><${Icon} name="tool" />${t.page.tools}${count > 0 && `: ${count}`}</button>
    ${isOpen && html`<${Choice} model=${model} settings=${settings} set=${set} />`}
  </div>`;
}
