// The files of system prompts.

import { get, part, post, put, remove } from "../api.js";
import { html, useEffect, useState } from "../library.js";
import { address, go } from "../router.js";
import { prompts } from "../state/catalogue.js";
import { attempt } from "../state/notices.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { confirm } from "./dialog.js";
import { Icon, IconButton } from "./icons.js";
import { PageFrame } from "./page-frame.js";
import { Empty, Loaded, useFresh } from "./parts.js";

async function askToDelete(name) {
  if (!(await confirm(t.deleteThis, visible(name), t.delete))) return;
  await attempt(() => remove(`system-prompts/${part(name)}`));
  await prompts.reload();
}

function PromptEditor({ name, content }) {
  const [text, setText] = useState(content);
  const [filename, setFilename] = useState(name ?? "");
  const save = (event) => {
    event.preventDefault();
    attempt(async () => {
      if (name) await put(`system-prompts/${part(name)}`, { content: text });
      else {
        const withEnd = /\.(md|txt)$/.test(filename) ? filename : `${filename}.md`;
        await post("system-prompts", { filename: withEnd, content: text });
      }
      go("prompts");
    });
  };
  return html`<form class="form" onSubmit=${save}>
    ${!name && html`<label class="field"><span>${t.fileName}</span>
      <input required maxlength="128" value=${filename} autocomplete="off"
        onInput=${(event) => setFilename(event.target.value)} /></label>`}
    <label class="field"><span>${t.systemPrompt}</span>
      <textarea rows="16" dir="auto" required value=${text}
        onInput=${(event) => setText(event.target.value)}></textarea></label>
    <div class="row end">
      <a class="button" href=${address("prompts")}>${t.cancel}</a>
      <button class="primary" aria-disabled=${!text.trim()}>${t.save}</button>
    </div>
  </form>`;
}

function EditPrompt({ name, openSidebar }) {
  const [content, setContent] = useState(null);
  useEffect(() => {
    attempt(async () => setContent((await get(`system-prompts/${part(name)}`)).content));
  }, []);
  return html`<${PageFrame} title=${visible(name)} openSidebar=${openSidebar}>
    ${content !== null && html`<${PromptEditor} name=${name} content=${content} />`}
  </${PageFrame}>`;
}

export function NewPromptPage({ openSidebar }) {
  return html`<${PageFrame} title=${t.newPrompt} openSidebar=${openSidebar}>
    <${PromptEditor} name=${null} content="" />
  </${PageFrame}>`;
}

function PromptList({ openSidebar }) {
  const state = useFresh(prompts);
  return html`<${PageFrame} title=${t.page.prompts} openSidebar=${openSidebar}
    actions=${html`<a class="button" href=${address("new-prompt")}>${t.newPrompt}</a>`}>
    <p class="hint">${t.aboutPrompts}</p>
    <${Loaded} state=${state}>
      ${state.value.prompts.length === 0 && html`<${Empty} text=${t.noPrompts} example=${t.examplePrompt}>
        <a class="button" href=${address("new-prompt")}>${t.newPrompt}</a></${Empty}>`}
      <ul class="plain">${state.value.prompts.map(({ filename, preview, word_count: words }) => html`
        <li class="card line" key=${filename}>
          <a class="card-head" href=${address("prompts", filename)}>
            <${Icon} name="prompt" />
            <span class="name" dir="auto">${visible(filename)}</span>
            <span class="summary" dir="auto">${visible(preview ?? "")}</span>
            <span class="state">${t.words(words)}</span>
          </a>
          <${IconButton} icon="trash" label=${t.deleteNamed(visible(filename))} onClick=${() => askToDelete(filename)} />
        </li>`)}</ul>
    </${Loaded}>
  </${PageFrame}>`;
}

export function PromptsPage({ name, openSidebar }) {
  return name
    ? html`<${EditPrompt} name=${name} openSidebar=${openSidebar} />`
    : html`<${PromptList} openSidebar=${openSidebar} />`;
}
