// Imports conversations of other programs.

import { html, useRef, useState, useValue } from "../library.js";
import { address } from "../router.js";
import { models } from "../state/catalogue.js";
import { importFiles, imports } from "../state/imports.js";
import { attempt } from "../state/notices.js";
import { downloadArchive } from "../state/sessions.js";
import { t } from "../texts.js";
import { visible } from "../visible.js";
import { Icon } from "./icons.js";
import { PageFrame } from "./page-frame.js";
import { dropOf, useFresh } from "./parts.js";

function Source() {
  const { value } = useFresh(models);
  const [model, setModel] = useState("");
  const picker = useRef(null);
  const names = value.models.map(({ name }) => name);
  return html`<div class="source" ...${dropOf((files) => importFiles(files, model))}>
    <input type="file" multiple hidden ref=${picker} tabindex="-1" aria-hidden="true"
      onChange=${({ target }) => { importFiles(target.files, model); target.value = ""; }} />
    <p><button type="button" class="primary" onClick=${() => picker.current.click()}>${t.chooseFiles}</button>
      ${" "}${t.orDropThem}</p>
    <label class="field"><span>${t.modelOfImported}</span>
      <select value=${model} onChange=${(event) => setModel(event.target.value)}>
        <option value="">${t.modelOfFile}</option>
        ${names.map((name) => html`<option key=${name} value=${name}>${visible(name)}</option>`)}
      </select></label>
  </div>`;
}

function stateOf({ size, sent, result, error }) {
  if (error) return t.importFailed;
  if (!result) return sent < size ? t.percent((sent / size) * 100) : t.isRead;
  const count = (outcome) => result.imported.filter((each) => each.outcome === outcome).length;
  return t.importedCount(count("created"), count("continued"), count("unchanged"));
}

function Result({ result }) {
  const { imported, left_out: leftOut, problems } = result;
  const first = imported.find(({ outcome }) => outcome !== "unchanged") ?? imported[0];
  return html`
    ${first && html`<p><a href=${address("chat", first.session_id)}>${t.openFirst}</a></p>`}
    ${imported.some(({ policies_changed: isChanged }) => isChanged) && html`<p>${t.policiesChanged}</p>`}
    ${Object.keys(leftOut).length > 0 && html`<h2>${t.notTaken}</h2>
      <ul>${Object.entries(leftOut).map(([what, count]) => html`<li key=${what}>${count} × ${visible(what)}</li>`)}</ul>`}
    ${problems.length > 0 && html`<h2>${t.couldNotBeImported}</h2>
      <ul>${problems.map(({ place, reason }) => html`<li key=${place}><code dir="ltr">${visible(place)}</code> ${visible(reason)}</li>`)}</ul>`}`;
}

/** How much is sent; without a value while the server reads, which a drawn one cannot lose again. */
function Progress({ size, sent }) {
  const known = sent < size ? { max: size, value: sent } : {};
  return html`<progress ...${known} aria-label=${t.progress}></progress>`;
}

function Import({ entry }) {
  const { name, size, sent, result, error } = entry;
  return html`<li class="card import ${error ? "failed" : ""}">
    <div class="card-head"><${Icon} name="import" />
      <span class="name" dir="auto">${visible(name)}</span>
      <span class="state" role="status">${stateOf(entry)}</span></div>
    ${!result && !error && html`<${Progress} key=${sent < size} size=${size} sent=${sent} />`}
    ${(result || error) && html`<div class="card-body">
      ${error ? html`<p dir="auto">${visible(error.message)}</p>` : html`<${Result} result=${result} />`}
    </div>`}
  </li>`;
}

function Export() {
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    await attempt(downloadArchive);
    setBusy(false);
  };
  return html`<section class="export">
    <h2>${t.exportAll}</h2>
    <p class="hint">${t.aboutExport}</p>
    <p><button type="button" aria-disabled=${isBusy} onClick=${run}><${Icon} name="export" />
      ${isBusy ? t.isExporting : t.exportAllNow}</button></p>
  </section>`;
}

export function ImportPage({ openSidebar }) {
  const entries = useValue(imports);
  return html`<${PageFrame} title=${t.page.import} openSidebar=${openSidebar}>
    <p class="hint">${t.aboutImport}</p>
    <${Source} />
    <ul class="plain">${entries.map((entry) => html`<${Import} key=${entry.id} entry=${entry} />`)}</ul>
    <${Export} />
  </${PageFrame}>`;
}
