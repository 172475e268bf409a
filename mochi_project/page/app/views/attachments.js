// Files of messages and of tools: images as images, others as names.

import { blob, part } from "../api.js";
import { html, useEffect, useState } from "../library.js";
import { t } from "../texts.js";
import { attempt } from "../state/notices.js";
import { visible } from "../visible.js";
import { Icon } from "./icons.js";

function Image({ path, name }) {
  const [source, setSource] = useState(null);
  useEffect(() => {
    let address = null;
    let isGone = false;
    blob(path).then((content) => {
      if (isGone) return;
      address = URL.createObjectURL(content);
      setSource(address);
    }, () => {});
    return () => {
      isGone = true;
      if (address) URL.revokeObjectURL(address);
    };
  }, [path]);
  return html`<img class="attachment" alt=${name} src=${source} />`;
}

async function save(path, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await blob(path));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export function Attachments({ list, sessionId }) {
  if (list.length === 0) return null;
  return html`<ul class="attachments">
    ${list.map((file) => {
      const name = visible(file.name ?? t.file);
      const path = `sessions/${part(sessionId)}/attachments/${part(file.attachment_id)}`;
      return html`<li key=${file.attachment_id}>
        ${file.media_type.startsWith("image/")
          ? html`<${Image} path=${path} name=${name} />`
          : html`<button type="button" class="file" onClick=${() => attempt(() => save(path, file.name ?? "file"))}>
              <${Icon} name="attach" /><bdi>${name}</bdi></button>`}
      </li>`;
    })}
  </ul>`;
}
