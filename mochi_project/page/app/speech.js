// Reads answers aloud, by the voice of the browser, where it has one.

import { signal } from "./library.js";

const voice = window.speechSynthesis ?? null;

export const canSpeak = voice !== null;

/** What is being read aloud, by the key that `readAloud` was called with, or null. */
export const spoken = signal(null);

export function stopReading() {
  spoken.value = null;
  voice.cancel();
}

/** Read a text; one that is being read ends. Browsers break off long texts, so each line is one of its own. */
export function readAloud(key, text) {
  stopReading();
  const lines = text.split("\n").filter((line) => line.trim());
  spoken.value = lines.length > 0 ? key : null;
  lines.forEach((line, index) => {
    const utterance = new SpeechSynthesisUtterance(line);
    const end = () => {
      if (spoken.peek() === key && (index === lines.length - 1 || !voice.speaking)) spoken.value = null;
    };
    utterance.addEventListener("end", end);
    utterance.addEventListener("error", end);
    voice.speak(utterance);
  });
}

if (canSpeak) window.addEventListener("hashchange", stopReading);
