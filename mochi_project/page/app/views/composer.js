// Where a message is written; what was written survives a reload.

import { html, useLayoutEffect, useRef, useState } from "../library.js";
import { notify } from "../state/notices.js";
import { drafts, preference } from "../storage.js";
import { t } from "../texts.js";
import { Icon, IconButton } from "./icons.js";

const MOST_FILES = 20;
let count = 0;

function readAsDataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** Return `{key, name, isImage, sent}`: what is shown, and what is sent with the message. */
async function attachmentOf(file) {
  count += 1;
  const data = await readAsDataUrl(file);
  const isImage = file.type.startsWith("image/");
  const media = file.type.startsWith("text/") ? { media_type: file.type } : {};
  return { key: count, name: file.name, isImage, sent: { data, name: file.name, ...media } };
}

function Files({ files, remove }) {
  return html`<ul class="attachments">
    ${files.map((file) => html`<li key=${file.key}>
      ${file.isImage
        ? html`<img class="attachment small" alt=${file.name} src=${file.sent.data} />`
        : html`<span class="file"><${Icon} name="attach" /><bdi>${file.name}</bdi></span>`}
      <${IconButton} icon="close" label=${t.removeFile(file.name)} onClick=${() => remove(file.key)} />
    </li>`)}
  </ul>`;
}

/**
 * `onSend(text, attachments)` resolves to whether the message was taken; `onStop` ends the run that
 * goes on, and is null where none does.
 */
export function Composer({ session, model, onSend, onStop, disabled }) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState([]);
  const [isSending, setSending] = useState(false);
  const [thinks, setThinks] = useState(preference.read("think") === "on");
  const area = useRef(null);
  const picker = useRef(null);
  const can = (capability) => model?.capabilities.includes(capability) ?? false;

  useLayoutEffect(() => {
    setText(drafts.read(session));
    setFiles([]);
    if (window.matchMedia("(pointer: fine)").matches) area.current.focus();
  }, [session]);
  useLayoutEffect(() => {
    area.current.style.height = "auto";
    area.current.style.height = `${Math.min(area.current.scrollHeight, 320)}px`;
  }, [text]);

  const write = (value) => {
    setText(value);
    drafts.write(session, value);
  };
  const attach = async (list) => {
    const chosen = [...list].slice(0, MOST_FILES - files.length);
    const isBlind = model && !can("vision"); // what the model can may not have arrived yet
    const seen = chosen.filter((file) => !(isBlind && file.type.startsWith("image/")));
    if (seen.length < chosen.length) notify(t.cannotSeeImages(model.name), { kind: "error" });
    const added = await Promise.all(seen.map(attachmentOf));
    setFiles((before) => [...before, ...added]);
  };
  const submit = async (event) => {
    event?.preventDefault();
    if (!text.trim() || isSending || onStop || disabled) return;
    setSending(true);
    const sent = [text, files];
    write("");
    setFiles([]);
    if (!(await onSend(...sent))) {
      write(sent[0]);
      setFiles(sent[1]);
    }
    setSending(false);
    area.current?.focus();
  };
  const onKey = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  };
  const onPaste = (event) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attach(event.clipboardData.files);
  };
  const onDrop = (event) => {
    if (event.dataTransfer.files.length === 0) return;
    event.preventDefault();
    attach(event.dataTransfer.files);
  };
  return html`<form class="composer" onSubmit=${submit} onDrop=${onDrop}
    onDragOver=${(event) => event.preventDefault()}>
    ${files.length > 0 && html`<${Files} files=${files}
      remove=${(key) => setFiles(files.filter((file) => file.key !== key))} />`}
    <textarea ref=${area} id="message" rows="1" dir="auto" placeholder=${t.writeMessage}
      aria-label=${t.writeMessage} value=${text} onInput=${(event) => write(event.target.value)}
      onKeyDown=${onKey} onPaste=${onPaste}></textarea>
    <div class="row">
      <input type="file" multiple hidden ref=${picker} tabindex="-1" aria-hidden="true"
        onChange=${(event) => { attach(event.target.files); event.target.value = ""; }} />
      <${IconButton} icon="attach" label=${t.attach} onClick=${() => picker.current.click()} />
      ${can("thinking") && html`<button type="button" class="toggle" aria-pressed=${`${thinks}`}
        onClick=${() => { setThinks(!thinks); preference.write("think", thinks ? null : "on"); }}>
        ${t.think}</button>`}
      <span class="grow"></span>
      ${onStop
        ? html`<button type="button" class="send" aria-label=${t.stop} title=${t.stop} onClick=${onStop}>
            <${Icon} name="stop" /></button>`
        : html`<button class="send" aria-label=${t.send} title=${t.send}
            disabled=${!text.trim() || isSending || disabled}><${Icon} name="send" /></button>`}
    </div>
  </form>`;
}
