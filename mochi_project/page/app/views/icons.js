// Icons of 24 × 24, drawn with lines.

import { html } from "../library.js";

const PATHS = {
  add: "M12 5v14M5 12h14",
  agent: "M12 3v3M7 6h10a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2H7a2 2 0 0 1-2-2V8a2 2 0 0 1 2-2ZM9.500 11v1.500M14.500 11v1.500M9 21h6",
  archive: "M4 5h16v4H4zM6 9v10h12V9M10 13h4",
  attach: "M20 11.500 12 19.500a5 5 0 0 1-7-7l8.500-8.500a3.300 3.300 0 0 1 4.700 4.700L9.700 17.200a1.700 1.700 0 0 1-2.400-2.400L15 7",
  branch: "M7 4v16M7 14c0-5 10-2 10-8M17 4v2M5 20h4",
  check: "M5 12.500l4.500 4.500L19 7",
  close: "M6 6l12 12M18 6 6 18",
  compact: "M12 3v6M8.500 6l3.500 3.500L15.500 6M12 21v-6M8.500 18l3.500-3.500 3.500 3.500M4 12h16",
  copy: "M9 9h10v11H9zM5 15V4h10",
  down: "M12 5v14M6 13l6 6 6-6",
  edit: "M4 20h4L19 9l-4-4L4 16ZM13 7l4 4",
  export: "M12 15V4M8 8l4-4 4 4M5 14v6h14v-6",
  gear: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.500v5M9 14.500v5",
  health: "M3 12h4l2.500-7 5 14L17 12h4",
  import: "M12 4v11M8 11l4 4 4-4M5 14v6h14v-6",
  inbox: "M4 5h16v14H4zM4 14h4l1.500 2.500h5L16 14h4",
  menu: "M4 7h16M4 12h16M4 17h16",
  microphone: "M12 3.500a3 3 0 0 0-3 3v4.500a3 3 0 0 0 6 0V6.500a3 3 0 0 0-3-3ZM5.500 11a6.500 6.500 0 0 0 13 0M12 17.500V21",
  model: "M12 3 4 7.500v9L12 21l8-4.500v-9ZM4 7.500l8 4.500 8-4.500M12 12v9",
  moon: "M20 14.500A8.500 8.500 0 0 1 9.500 4 8.500 8.500 0 1 0 20 14.500Z",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  next: "M9 5l7 7-7 7",
  pin: "M9 4h6l-1 6 3 3H7l3-3ZM12 13v7",
  previous: "M15 5l-7 7 7 7",
  prompt: "M5 4h14v16H5zM8.500 9h7M8.500 13h7M8.500 17h4",
  retry: "M4 12a8 8 0 1 1 2.500 5.800M4 20v-4.500h4.500",
  rule: "M12 3 5 6v5c0 4.500 3 8 7 10 4-2 7-5.500 7-10V6ZM9 12l2 2 4-4",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14ZM20 20l-4-4",
  send: "M12 19V5M6 11l6-6 6 6",
  server: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01",
  stop: "M7 7h10v10H7z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2v2M12 20v2M4 12H2M22 12h-2M5 5l1.500 1.500M17.500 17.500 19 19M19 5l-1.500 1.500M6.500 17.500 5 19",
  tag: "M4 4h8l8 8-8 8-8-8ZM8 8h.01",
  tool: "M14.500 6.500a4 4 0 0 0-5.300 5L4 16.700V20h3.300l5.200-5.200a4 4 0 0 0 5-5.300L15 12l-3-3Z",
  unfold: "M6 9l6 6 6-6",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  voice: "M4 9.500v5h4l5 4v-13l-5 4ZM16.500 8.500a5 5 0 0 1 0 7M19 6a8.500 8.500 0 0 1 0 12",
};

const MIRRORED = new Set(["next", "previous"]);

export function Icon({ name }) {
  const kind = `icon${MIRRORED.has(name) ? " mirrored" : ""}`;
  return html`<svg class=${kind} viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

/** A button that shows only an icon; its label is read and shown as a hint. */
export function IconButton({ icon, label, ...rest }) {
  return html`<button type="button" class="icon-button" aria-label=${label} title=${label} ...${rest}>
    <${Icon} name=${icon} />
  </button>`;
}
