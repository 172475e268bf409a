// Light or dark: as the system has it, until the person chooses.

import { effect, signal } from "../library.js";
import { preference } from "../storage.js";

const system = window.matchMedia("(prefers-color-scheme: dark)");
const chosen = signal(preference.read("theme"));
const ofSystem = signal(system.matches ? "dark" : "light");

export const theme = signal(chosen.peek() ?? ofSystem.peek());

system.addEventListener("change", (event) => {
  ofSystem.value = event.matches ? "dark" : "light";
});

effect(() => {
  theme.value = chosen.value ?? ofSystem.value;
  document.documentElement.dataset.theme = theme.value;
});

export function toggleTheme() {
  const next = theme.peek() === "dark" ? "light" : "dark";
  chosen.value = next === ofSystem.peek() ? null : next;
  preference.write("theme", chosen.value);
}
