// What the browser keeps. A browser may forbid it; then it is kept until the page is left.

const kept = new Map();

function read(storage, name) {
  const key = `${storage} ${name}`;
  if (kept.has(key)) return kept.get(key);
  try {
    return window[storage].getItem(`mochi.${name}`);
  } catch {
    return null;
  }
}

function write(storage, name, value) {
  try {
    if (value === null || value === "") window[storage].removeItem(`mochi.${name}`);
    else window[storage].setItem(`mochi.${name}`, value);
    kept.delete(`${storage} ${name}`);
  } catch {
    kept.set(`${storage} ${name}`, value || null);
  }
}

/** Kept until the tab is closed, or on this device until it is replaced. */
export const token = {
  read: () => read("sessionStorage", "token") ?? read("localStorage", "token"),
  write: (value, { onDevice }) => {
    write("sessionStorage", "token", onDevice ? null : value);
    write("localStorage", "token", onDevice ? value : null);
  },
};

/** Texts that were written and not sent, by the id of the session. */
export const drafts = {
  read: (session) => read("localStorage", `draft.${session}`) ?? "",
  write: (session, text) => write("localStorage", `draft.${session}`, text),
};

export const preference = {
  read: (name, otherwise = null) => read("localStorage", name) ?? otherwise,
  write: (name, value) => write("localStorage", name, value),
};
