// What a new chat begins with: what is here to answer, what is missing, and what can be tried.

import { html, useEffect, useRef, useValue } from "../library.js";
import { address } from "../router.js";
import { isMissing, models, tools } from "../state/catalogue.js";
import { preference } from "../storage.js";
import { t } from "../texts.js";
import { ActionButton, reasonOf } from "./parts.js";
import { Pulls } from "./pulls.js";
import { useMoves, useSettled } from "./stillness.js";

/** Return three things to try: those that use tools first, where the model and the tools can. */
function suggestionsFor(model, known) {
  const withTools = model.capabilities.includes("tools")
    ? t.suggestionsWithTools.filter(({ uses }) => uses.every((name) => name in known))
    : [];
  return [...withTools, ...(model.provider === "local" ? t.suggestionsSmall : t.suggestions)].slice(0, 3);
}

/** Return what is offered until the models and tools are known: what was offered last. */
function usualSuggestions() {
  try {
    return JSON.parse(preference.read("suggestions")) ?? t.suggestions;
  } catch {
    return t.suggestions;
  }
}

function useSuggestions(model, isLoaded) {
  const { value: known, loaded } = useValue(tools.state);
  const found = isLoaded && loaded ? suggestionsFor(model, known.tools) : null;
  const kept = found && JSON.stringify(found);
  useEffect(() => {
    if (kept) preference.write("suggestions", kept);
  }, [kept]);
  return found ?? usualSuggestions();
}

/** Why providers have no models; of the built-in one, that is said by what can be fetched. */
function Problems({ problems }) {
  return problems.filter(({ provider }) => provider !== "local")
    .map((problem) => html`<p class="hint" dir="auto" key=${problem.provider}>${reasonOf(problem)}</p>`);
}

function NoModel({ problems, isListed }) {
  return html`<div class="greeting"><h1>${t.noModelYet}</h1>
    <p>${t.howToGetModel}</p>
    <${Problems} problems=${problems} />
    ${isListed && !problems.some(({ provider }) => provider === "ollama") && html`<p class="hint">${t.ollamaHasNoModel}</p>`}
    <div class="row center-row"><${ActionButton} label=${t.checkAgain} run=${models.reload} /></div>
    <${Pulls} /></div>`;
}

/** How many models each provider has. */
function Providers({ list }) {
  const counts = new Map();
  for (const { kind, provider } of list) if (kind === "model") counts.set(provider, (counts.get(provider) ?? 0) + 1);
  return html`<p class="hint"><a href=${address("models")}>${t.modelsHere}</a>${" "}
    ${[...counts].map(([provider, count]) => `${provider}: ${t.modelCount(count, null)}`).join(" · ")}</p>`;
}

/** A click sends one, so they take none when they have just become others, or what has come above has moved them. */
function Suggestions({ list, onTry }) {
  const place = useRef(null);
  const moves = useMoves(place);
  const isSettled = useSettled([moves, ...list.map(({ text }) => text)].join());
  return html`<ul class="suggestions" ref=${place}>
    ${list.map(({ text, uses }) => html`<li key=${text}>
      <button type="button" aria-disabled=${!isSettled} onClick=${() => onTry(text, uses)}>${text}</button></li>`)}
  </ul>`;
}

/** `onTry(text, uses)` begins a chat with a suggestion, and the tools that it uses. */
export function Greeting({ model, onTry }) {
  const { value: { models: list, problems: listed }, loaded: isLoaded, error } = useValue(models.state);
  const problems = error?.details?.problems ?? (error ? [error] : listed);
  const suggestions = useSuggestions(model, isLoaded && model);
  useEffect(() => {
    tools.reload();
  }, []);
  if ((isLoaded || error) && list.length === 0) return html`<${NoModel} problems=${problems} isListed=${!error} />`;
  const isAlone = list.every(({ provider }) => provider === "local"); // nothing but the built-in models
  const isAway = isMissing(preference.read("model")) || isAlone;
  const callsTools = list.some(({ capabilities }) => capabilities.includes("tools"));
  return html`<div class="greeting">
    <h1>${t.greeting}</h1>
    ${isLoaded ? html`<${Providers} list=${list} />` : html`<p class="hint">${"\u00a0"}</p>`}
    ${model?.provider === "local" && html`<p class="hint">${t.aboutBuiltIn(model.capabilities.includes("tools"))}</p>`}
    ${isLoaded && isAway && html`<${Problems} problems=${problems} />`}
    <${Suggestions} list=${suggestions} onTry=${onTry} />
    ${isLoaded && !callsTools && html`<${Pulls} onlyTools />`}
  </div>`;
}
