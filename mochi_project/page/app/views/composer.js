// Where a message is written; what was written survives a reload.

import { html, signal, useLayoutEffect, useRef, useState, useValue } from "../library.js";
import { notify } from "../state/notices.js";
import { drafts, preference } from "../storage.js";
import { t } from "../texts.js";
import { DictateButton } from "./dictation.js";
import { focusMain, isTouched, TEXT_FIELDS } from "./focus.js";
import { Icon, IconButton } from "./icons.js";
import { dropOf } from "./parts.js";
import { useSettled } from "./stillness.js";
import { ToolMenu } from "./tool-menu.js";

const MOST_FILES = 20;
const LONG = 20_000; // characters of a text that is attached, as the box would be slow with it
let count = 0;

/** Files of the messages that are being written, by session: `{key, name, isImage, sent, isLost}`; `sent` once it has been read. */
const attached = signal(new Map());

/** Change those of a session, and leave out all that could not be read. */
function changeFiles(session, change) {
  const changed = new Map(attached.peek()).set(session, change(attached.peek().get(session) ?? []));
  attached.value = new Map([...changed].map(([name, files]) => [name, files.filter(({ isLost }) => !isLost)]));
}

/** `{session}`: whose draft was changed outside of its box. */
const given = signal(null);

/** Put what was not sent before what has been written in its session since. */
export function giveBack(session, text, files, since = drafts.read(session)) {
  drafts.write(session, [text, since].filter(Boolean).join("\n\n"));
  changeFiles(session, (added) => [...files, ...added]);
  given.value = { session };
}

/** Return what is being written in a session, `{text, files}`, and empty its box. */
export function takeDraft(session) {
  const taken = { text: drafts.read(session), files: attached.peek().get(session) ?? [] };
  drafts.write(session, "");
  changeFiles(session, () => []);
  given.value = { session };
  return taken;
}

const isPicture = ({ type }) => type.startsWith("image/");

function readAsDataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

function attachmentOf(file) {
  count += 1;
  return { key: count, name: file.name, isImage: isPicture(file), sent: null, isLost: false };
}

async function sentOf(file) {
  const data = await readAsDataUrl(file);
  const media = file.type.startsWith("text/") ? { media_type: file.type } : {};
  return { data, name: file.name, ...media };
}

function Files({ files, remove }) {
  return html`<ul class="attachments">
    ${files.map((file) => html`<li key=${file.key}>
      ${file.isImage && file.sent
        ? html`<img class="attachment small" alt=${file.name} src=${file.sent.data} />`
        : html`<span class="file"><${Icon} name="attach" /><bdi>${file.name}</bdi></span>`}
      <${IconButton} icon="close" label=${t.removeFile(file.name)} onClick=${() => remove(file.key)} />
    </li>`)}
  </ul>`;
}

/** Pictures that came with a text, which may have been meant as well. */
function Offers({ files, attach }) {
  return html`<div class="row wrap">
    ${files.map((file) => html`<button type="button" class="small" key=${file.name}
      onClick=${() => attach(file)}><${Icon} name="attach" />${t.attachToo(file.name)}</button>`)}
  </div>`;
}

/**
 * `kept` is of `useChatSettings`.
 * `onSend(text, attachments)` resolves to whether the message was taken; `onStop` ends the run that
 * goes on, and is null where none does.
 */
export function Composer({ session, model, kept, onSend, onStop, isOff }) {
  const [text, setText] = useState("");
  const files = useValue(attached).get(session) ?? [];
  const setFiles = (change) => changeFiles(session, change);
  const [offered, setOffered] = useState([]);
  const [isSending, setSending] = useState(false);
  const [thinks, setThinks] = useState(preference.read("think") === "on");
  const area = useRef(null);
  const picker = useRef(null);
  const can = (capability) => model?.capabilities.includes(capability) ?? false;
  const isBlind = model && !can("vision"); // what the model can may not have arrived yet
  const isEmpty = !text.trim() && files.length === 0;
  const isReading = files.some(({ sent }) => !sent);

  useLayoutEffect(() => {
    setText(drafts.read(session));
    setOffered([]);
    const isWriting = document.activeElement.matches(TEXT_FIELDS); // while the chat was being loaded
    if (window.matchMedia("(pointer: fine)").matches && !isWriting) area.current.focus();
  }, [session]);
  const back = useValue(given);
  useLayoutEffect(() => {
    if (back?.session === session) setText(drafts.read(session));
  }, [back]);
  useLayoutEffect(() => {
    area.current.style.height = "auto";
    area.current.style.height = `${Math.min(area.current.scrollHeight, 320)}px`;
  }, [text]);

  const isAnswering = Boolean(onStop);
  const isSettled = useSettled(isAnswering, false); // what stops has become what sends, or the other way round
  const wasOnStop = useRef(false);
  useLayoutEffect(() => {
    wasOnStop.current = !isAnswering && document.activeElement?.matches(".send");
    if (wasOnStop.current) focusMain();
  }, [isAnswering]);

  const write = (value) => {
    wasOnStop.current = false;
    setText(value);
    drafts.write(session, value);
  };
  const detach = (key) => setFiles((before) => before.filter((file) => file.key !== key));
  const attach = (list) => {
    if (!area.current) return; // it was left while they were chosen
    const chosen = [...list].slice(0, Math.max(0, MOST_FILES - files.length));
    const seen = chosen.filter((file) => !(isBlind && isPicture(file)));
    if (seen.length < chosen.length) notify(t.cannotSeeImages(model.name), { kind: "error" });
    const added = seen.map(attachmentOf);
    setFiles((before) => [...before, ...added]);
    added.forEach(async (file, index) => {
      try {
        file.sent = await sentOf(seen[index]);
      } catch {
        file.isLost = true;
        notify(`${file.name}: ${t.cannotRead}`, { kind: "error" });
      }
      setFiles((before) => before); // draws it where it is by now
    });
  };
  const submit = async (event) => {
    event?.preventDefault();
    if (isEmpty || isReading || isSending || onStop || isOff) return;
    setSending(true);
    write("");
    setFiles(() => []);
    setOffered([]);
    // A message has a text: that of files alone is their names.
    const message = text.trim() ? text : files.map(({ name }) => name).join(", ");
    if (!(await onSend(message, files))) giveBack(session, text, files, area.current?.value);
    setSending(false);
    const { activeElement } = document; // somebody may be writing elsewhere by now
    if (activeElement === document.body || area.current?.form.contains(activeElement)) area.current?.focus();
  };
  const onKey = (event) => {
    // The Enter that ends a composition has this code in Safari. With a touched keyboard there is no Shift.
    const isComposing = event.isComposing || event.keyCode === 229;
    if (event.key !== "Enter" || event.shiftKey || isComposing || isTouched) return;
    event.preventDefault();
    if (isSettled || !wasOnStop.current) submit(); // else it was to stop
  };
  const onPaste = (event) => {
    const pasted = [...event.clipboardData.files];
    const written = event.clipboardData.getData("text/plain");
    // A file that was copied comes with its name, a table with a picture of it.
    const isFile = !written.trim() || pasted.some(({ name }) => name === written.trim());
    if (pasted.length > 0 && isFile) {
      event.preventDefault();
      attach(pasted);
      return;
    }
    setOffered(pasted.filter((file) => !isBlind || !isPicture(file)));
    if (written.length <= LONG) return;
    event.preventDefault();
    attach([new File([written], t.pastedText, { type: "text/plain" })]);
  };
  const attachOffered = (file) => {
    setOffered(offered.filter((each) => each !== file));
    attach([file]);
  };
  return html`<form class="composer" id="composer" onSubmit=${submit} ...${dropOf(attach)}>
    ${files.length > 0 && html`<${Files} files=${files} remove=${detach} />`}
    ${offered.length > 0 && html`<${Offers} files=${offered} attach=${attachOffered} />`}
    <textarea ref=${area} id="message" rows="1" dir="auto" enterkeyhint=${isTouched ? "enter" : "send"} placeholder=${t.writeMessage}
      aria-label=${t.writeMessage} value=${text} onInput=${(event) => write(event.target.value)}
      onKeyDown=${onKey} onPaste=${onPaste}></textarea>
    <div class="row">
      <input type="file" multiple hidden ref=${picker} tabindex="-1" aria-hidden="true"
        onChange=${(event) => { attach(event.target.files); event.target.value = ""; }} />
      <${IconButton} icon="attach" label=${t.attach} onClick=${() => picker.current.click()} />
      ${(model?.kind ?? "model") === "model" && html`<${ToolMenu} model=${model}
        settings=${kept.values.tool_settings} set=${kept.setTools} />`}
      ${can("thinking") && html`<button type="button" class="toggle" aria-pressed=${`${thinks}`}
        onClick=${() => { setThinks(!thinks); preference.write("think", thinks ? null : "on"); }}>
        ${t.think}</button>`}
      <span class="grow"></span>
      <${DictateButton} key=${session} area=${area}
        onText=${(said) => write([area.current.value.trimEnd(), said].filter(Boolean).join(" "))} />
      ${isAnswering
        ? html`<button type="button" class="send" aria-label=${t.stop} title=${t.stop} aria-disabled=${!isSettled}
            onClick=${onStop}><${Icon} name="stop" /></button>`
        : html`<button class="send" aria-label=${t.send} title=${t.send}
            aria-disabled=${Boolean(isEmpty || isReading || isSending || isOff || !isSettled)}><${Icon} name="send" /></button>`}
    </div>
  </form>`;
}
