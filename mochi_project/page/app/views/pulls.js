// The models that the server can fetch.

import { html, useEffect, useValue } from "../library.js";
import { fail } from "../state/notices.js";
import { load, pull, pullable, pulls } from "../state/pulls.js";
import { t } from "../texts.js";
import { Icon } from "./icons.js";

const callsTools = ({ capabilities }) => capabilities.includes("tools");

/**
 * The models that can be fetched and are not there, with the progress of those that come; first those that can call
 * tools, or, with `onlyTools`, no others.
 */
export function Pulls({ onlyTools = false }) {
  const offered = useValue(pullable);
  const running = useValue(pulls);
  useEffect(() => {
    load().catch(fail);
  }, []);
  const missing = offered.filter((model) => !model.present && (callsTools(model) || !onlyTools))
    .sort((a, b) => callsTools(b) - callsTools(a));
  if (missing.length === 0) return null;
  return html`<section class="group" aria-labelledby="pulls"><h2 id="pulls">${onlyTools ? t.builtInWithTools : t.builtInModels}</h2>
    <p class="hint">${t.aboutBuiltInModels}</p>
    <ul class="plain">${missing.map((model) => html`<li key=${model.name} class="card line">
      <div class="card-head"><${Icon} name="model" /><span class="name">${model.name}</span>
        ${running[model.name]
          ? html`<${PullProgress} name=${model.name} progress=${running[model.name]} />`
          : html`<span class="summary">${t.megabytes(Math.round(model.size_mb))}${callsTools(model) && `, ${t.callsTools}`}</span>`}
        <button type="button" class="small" aria-label=${t.pullNamed(model.name)}
          aria-disabled=${Boolean(running[model.name])} onClick=${() => pull(model.name)}>${t.pull}</button>
      </div></li>`)}</ul>
  </section>`;
}

function PullProgress({ name, progress: { completed, total } }) {
  const known = total ? { value: completed, max: total } : {};
  return html`<span class="pull" role="status">
    <progress ...${known} aria-label=${t.isBeingPulled(name)}></progress>
    <span class="figure">${total ? t.percent((completed / total) * 100) : t.pulling}</span></span>`;
}
