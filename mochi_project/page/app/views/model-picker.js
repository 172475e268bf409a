// The choice of a model: a button that opens a list to search.

import { html, useDismiss, useEffect, useFocus, useRef, useState, useValue } from "../library.js";
import { inMemory, isMissing, models } from "../state/catalogue.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { openDialog } from "./dialog.js";
import { isTouched } from "./focus.js";
import { Icon } from "./icons.js";
import { Loaded } from "./parts.js";

/** Return what is worth knowing of a model before it is chosen. */
function about({ parameter_size: parameters, size_mb: size, capabilities, description }) {
  return [
    description, parameters, size && t.megabytes(Math.round(size)),
    ...capabilities.filter((each) => each !== "completion"),
  ].filter(Boolean).join(" · ");
}

function groupsOf(list) {
  const groups = new Map();
  for (const model of list) {
    const group = model.kind === "model" ? model.provider : t.kind[model.kind];
    groups.set(group, [...(groups.get(group) ?? []), model]);
  }
  return [...groups];
}

function Option({ model, value, active, choose, isLoaded }) {
  const { name } = model;
  const element = useRef(null);
  const isActive = name === active;
  useEffect(() => {
    if (isActive) element.current.scrollIntoView({ block: "nearest" });
  }, [isActive]);
  return html`<div role="option" id=${`model ${name}`} aria-selected=${`${name === value}`} ref=${element}
    class=${isActive ? "active" : ""} onClick=${() => choose(name)}>
    <span class="row"><span class="name"><bdi>${visible(name)}</bdi></span>
      ${isLoaded && html`<span class="tag">${t.isInMemory}</span>`}
      ${isMissing(name) && html`<span class="tag">${t.notHere}</span>`}</span>
    <span class="about" dir="auto">${visible(about(model))}</span>
  </div>`;
}

function List({ value, choose }) {
  const known = useValue(models.state);
  const loaded = useValue(inMemory.state).value.models.map(({ name }) => name);
  const [words, setWords] = useState("");
  const field = useFocus();
  const [chosen, setActive] = useState(null);
  const first = useRef(null); // what was there when it was opened
  if (known.loaded) first.current ??= known.value.models;
  useEffect(() => {
    models.reload(); // one may have come meanwhile
    inMemory.reload();
  }, []);
  const wanted = words.toLowerCase().split(/\s+/);
  const isWanted = (model) => {
    const state = loaded.includes(model.name) ? t.isInMemory : "";
    const text = `${model.name} ${model.provider} ${about(model)} ${state}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  };
  // What comes late comes last, and what goes stays: a click may be meant for what is there.
  const before = first.current ?? [];
  const late = known.value.models.filter(({ name }) => !before.some((model) => model.name === name));
  const groups = [before, late].flatMap((each) => groupsOf(each.filter(isWanted)));
  const names = groups.flatMap(([, members]) => members.map(({ name }) => name)); // as they are seen
  const active = [chosen, value].find((name) => names.includes(name)) ?? names[0];
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setActive(names[(names.indexOf(active) + step + names.length) % names.length]);
    } else if (event.key === "Enter" && active) {
      event.preventDefault();
      choose(active);
    }
  };
  return html`<div class="picker-list">
    <input type="search" role="combobox" aria-label=${t.searchIn(t.model)} placeholder=${t.search} ref=${isTouched ? null : field}
      aria-controls="models" aria-expanded="true" aria-autocomplete="list" autocomplete="off"
      aria-activedescendant=${active && `model ${active}`} value=${words} onKeyDown=${onKey}
      onInput=${(event) => setWords(event.target.value)} />
    <div role="listbox" id="models" aria-label=${t.model} tabindex="-1" autofocus=${isTouched} ref=${isTouched ? field : null}>
      ${groups.map(([group, members], index) => html`<div role="group" aria-label=${group} key=${`${index} ${group}`}>
        <div class="group-name" aria-hidden="true">${group}</div>
        ${members.map((model) => html`<${Option} key=${model.name} model=${model} value=${value}
          active=${active} choose=${choose} isLoaded=${loaded.includes(model.name)} />`)}
      </div>`)}
    </div>
    <${Loaded} state=${known}>${names.length === 0 && html`<p class="hint" role="status">${t.nothingFound}</p>`}</${Loaded}>
  </div>`;
}

/** `value` may be the name of a model that is not there any more. */
export function ModelPicker({ value, onChange }) {
  const { loaded, error } = useValue(models.state);
  const [isOpen, setOpen] = useState(false);
  const element = useRef(null);
  const close = () => {
    setOpen(false);
    document.getElementById("model").focus();
  };
  useDismiss(element, isOpen, ({ type }) => (type === "keydown" ? close() : setOpen(false)));
  const choose = (name) => {
    close();
    if (name !== value) onChange(name);
  };
  const isGone = isMissing(value);
  const name = value || (loaded || error ? t.noModel : t.loading);
  return html`<div class="picker" ref=${element}>
    <button type="button" id="model" class="quiet model-choice" aria-haspopup="listbox" aria-expanded=${`${isOpen}`}
      aria-label=${`${t.model}: ${name}${isGone ? `, ${t.notHere}` : ""}`} onClick=${() => setOpen(!isOpen)}>
      <span class="name"><bdi>${visible(name)}</bdi></span>
      ${isGone && html` <span class="tag">${t.notHere}</span>`}
      <${Icon} name="unfold" />
    </button>
    ${isOpen && html`<${List} value=${value} choose=${choose} />`}
  </div>`;
}

/** Ask which model shall answer; resolves with its name, or null. */
export const askModel = () => openDialog(t.answerWith, ({ close }) => html`<${List} value=${null} choose=${close} />`);
