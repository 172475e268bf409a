// Texts of models and tools as a person can trust to see them.

import { stringify } from "./json.js";

const HIDDEN =
  // Control characters, soft hyphens, marks of direction, and spaces without width.
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]/g;

/** Write characters that are not seen, or change how others are shown, as `\uXXXX`. */
export function visible(text) {
  return text.replace(
    HIDDEN,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Return the JSON of arguments for a person. */
export function shownArguments(values) {
  return visible(stringify(values, 2) ?? "");
}
