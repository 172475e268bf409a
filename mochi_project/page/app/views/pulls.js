// The models that the server can fetch.

import { html, useEffect, useValue } from "../library.js";
import { fail } from "../state/notices.js";
import { load, pull, pullable, pulls } from "../state/pulls.js";
import { t } from "../texts.js";
import { Icon } from "./icons.js";

/** The models that can be fetched and are not there, with the progress of those that come. */
export function Pulls() {
  const offered = useValue(pullable);
  const running = useValue(pulls);
  useEffect(() => {
    load().catch(fail);
  }, []);
  const missing = offered.filter(({ present }) => !present);
  if (missing.length === 0) return null;
  return html`<section class="group"><h2>${t.builtInModels}</h2>
    <p class="hint">${t.aboutBuiltInModels}</p>
    <ul class="plain">${missing.map(({ name, size_mb: size }) => html`<li key=${name} class="card line">
      <div class="card-head"><${Icon} name="model" /><span class="name">${name}</span>
        ${running[name]
          ? html`<${PullProgress} name=${name} progress=${running[name]} />`
          : html`<span class="summary">${t.megabytes(size)}</span>
            <button type="button" class="small" aria-label=${t.pullNamed(name)}
              onClick=${() => pull(name)}>${t.pull}</button>`}
      </div></li>`)}</ul>
  </section>`;
}

function PullProgress({ name, progress: { completed, total } }) {
  const known = total ? { value: completed, max: total } : {};
  return html`<span class="pull" role="status">
    <progress ...${known} aria-label=${t.isBeingPulled(name)}></progress>
    <span class="figure">${total ? t.percent((completed / total) * 100) : t.pulling}</span></span>`;
}
