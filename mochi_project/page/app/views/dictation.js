// Writes what a person says, by the speech recognition of the browser, where it has one.

import { html, useEffect, useRef, useState } from "../library.js";
import { notify } from "../state/notices.js";
import { preference } from "../storage.js";
import { language, t } from "../texts.js";
import { confirm } from "./dialog.js";
import { IconButton } from "./icons.js";

const Recognition = window.SpeechRecognition ?? window.webkitSpeechRecognition;

/** Ends that are no failures: silence, and that it was ended. */
const USUAL = new Set(["no-speech", "aborted"]);

/** Tell once where the sound may go; resolves to whether the person wants that. */
async function isWanted() {
  if (preference.read("dictation")) return true;
  const isAgreed = await confirm(t.dictate, t.aboutDictation, t.dictate);
  if (isAgreed) preference.write("dictation", "on");
  return isAgreed;
}

function recognitionOf(onText, onEnd) {
  const recognition = new Recognition();
  recognition.continuous = true;
  recognition.lang = navigator.language || language;
  recognition.addEventListener("result", ({ results, resultIndex }) => {
    const said = [...results].slice(resultIndex).filter(({ isFinal }) => isFinal);
    if (said.length > 0) onText(said.map(([best]) => best.transcript.trim()).join(" "));
  });
  recognition.addEventListener("error", ({ error }) => {
    if (!USUAL.has(error)) notify(t.dictationFailed, { kind: "error" });
  });
  recognition.addEventListener("end", onEnd);
  return recognition;
}

/** Begins and ends a dictation into a text area; sending the message ends it as well. */
export function DictateButton({ area, onText }) {
  const [isOn, setOn] = useState(false);
  const running = useRef(null);
  const end = () => running.current?.abort();
  useEffect(() => {
    const { form } = area.current;
    form.addEventListener("submit", end);
    return () => {
      form.removeEventListener("submit", end);
      end();
    };
  }, []);
  const onClick = async () => {
    if (isOn) {
      running.current.stop(); // and what was said is written
      return;
    }
    if (!(await isWanted()) || !area.current) return;
    const write = (said) => running.current === recognition && onText(said);
    const recognition = recognitionOf(write, () => {
      running.current = null;
      setOn(false);
    });
    running.current = recognition;
    setOn(true);
    recognition.start();
    area.current.focus();
  };
  return Recognition && html`<${IconButton} icon="microphone" label=${isOn ? t.endDictation : t.dictate}
    aria-pressed=${`${isOn}`} onClick=${onClick} />`;
}
