// Requests to the HTTP API, and its streams of server-sent events.

import { parse, stringify } from "./json.js";
import { signal } from "./library.js";
import { token } from "./storage.js";
import { t } from "./texts.js";

// This module is at page/<version>/app/api.js below the root of the server.
const root = new URL("../../../", import.meta.url);
const base = new URL("api/v1/", root);

/** Whether the server has refused a request because it had no token, or a wrong one; it waits until there is another token. */
export const tokenIsMissing = signal(false);

/** Whether a stream has lost its connection, and the page tries to connect again. */
export const connectionLost = signal(false);

/** An error that the server answered with, or that there was no answer. */
export class ApiError extends Error {
  constructor({ code, message, details = {} }, status) {
    super(message);
    this.code = code;
    this.details = details;
    this.status = status;
  }
}

function authorization() {
  const secret = token.read();
  return secret ? { Authorization: `Bearer ${secret}` } : {};
}

const unreachable = () => new ApiError({ code: "UNREACHABLE", message: t.serverUnreachable }, 0);

/** Return the error of an answer; `answer` is its JSON, or null, and `sent` the headers of the request. */
function errorOf(status, answer, sent) {
  const isCurrent = sent.Authorization === authorization().Authorization; // else a token was entered since
  if (status === 401) connectionLost.value = false; // it is an answer
  if (status === 401 && isCurrent) {
    refused = sent.Authorization;
    tokenIsMissing.value = true;
  }
  return new ApiError(answer?.error ?? { code: "UNKNOWN", message: t.unexpectedAnswer(status) }, status);
}

// What is sent while the page is left outlives it.
let keepalive = false;
window.addEventListener("pagehide", () => { keepalive = true; });
window.addEventListener("pageshow", () => { keepalive = false; });

let refused; // the header of the token that was refused last

// Another tab may have been given a token.
window.addEventListener("storage", ({ key }) => {
  if (key === "mochi.token") tokenIsMissing.value = true; // what is shown may be another person's
  if (authorization().Authorization !== refused) tokenIsMissing.value = false;
});

/** Wait until there is another token. */
async function waitForToken(abort) {
  abort?.throwIfAborted();
  let end;
  try {
    await new Promise((resolve, reject) => {
      abort?.addEventListener("abort", () => reject(abort.reason), { once: true });
      end = tokenIsMissing.subscribe((isMissing) => isMissing || resolve());
    });
  } finally {
    end();
  }
}

async function send(method, path, { body, headers = {}, signal: abort } = {}) {
  const options = { method, headers: { ...headers, ...authorization() }, signal: abort, keepalive, cache: "no-store" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = stringify(body);
  }
  let response;
  try {
    response = await fetch(new URL(path, base), options);
  } catch (error) {
    if (abort?.aborted) throw error;
    throw unreachable();
  }
  if (response.ok) return response;
  const error = errorOf(response.status, await response.json().catch(() => null), options.headers);
  if (error.status !== 401) throw error;
  await waitForToken(abort);
  return send(method, path, { body, headers, signal: abort });
}

async function json(method, path, body, options) {
  const response = await send(method, path, { ...options, body });
  return response.status === 204 ? null : parse(await response.text());
}

export const get = (path, options) => json("GET", path, undefined, options);
export const post = (path, body = {}, options) => json("POST", path, body, options);
export const put = (path, body) => json("PUT", path, body);
export const patch = (path, body) => json("PATCH", path, body);
export const remove = (path) => json("DELETE", path);
export const blob = async (path) => (await send("GET", path)).blob();
export const postForBlob = async (path, body) => (await send("POST", path, { body })).blob();

/** Post a file as it is, and resolve to the answer; `onProgress(bytes)` is told how much is sent. */
export function upload(path, file, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch() tells nothing of what it sends
    request.open("POST", new URL(path, base));
    request.responseType = "json";
    const headers = { "Content-Type": "application/octet-stream", ...authorization() };
    Object.entries(headers).forEach(([name, value]) => request.setRequestHeader(name, value));
    request.upload.onprogress = ({ loaded }) => onProgress(loaded);
    request.onerror = () => reject(unreachable());
    request.onload = () => {
      if (request.status === 200 && request.response) resolve(request.response);
      else reject(errorOf(request.status, request.response, headers));
    };
    request.send(file);
  });
}

/** Return the query of these values; those that are null, undefined or "" are left out. */
export function query(values) {
  const pairs = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  const text = new URLSearchParams(pairs.filter(([, value]) => value !== "")).toString();
  return text && `?${text}`;
}

/** Write a part of a path; a name may have any characters. */
export const part = encodeURIComponent;

async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffer += value;
      const complete = buffer.split("\n\n");
      buffer = complete.pop();
      for (const frame of complete) {
        const field = (name) => new RegExp(`^${name}: (.*)$`, "m").exec(frame)?.[1];
        yield { id: field("id"), event: field("event"), data: field("data") };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Post a body, and yield `{event, data}` of the stream that answers, until its `done`. */
export async function* postStream(path, body) {
  const response = await send("POST", path, { body });
  for await (const { event, data } of frames(response.body)) {
    if (!event) continue;
    yield { event, data: parse(data) };
    if (event === "done") return;
  }
  throw new ApiError({ code: "UNREACHABLE", message: t.connectionEnded }, 0);
}

/** Wait for a while, at most until the network is there again. */
export function pause(milliseconds, abort) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      window.removeEventListener("online", end);
      abort?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    window.addEventListener("online", end);
    abort?.addEventListener("abort", end);
  });
}

/**
 * Yield `{event, data}` of a stream, and `{event: "connected"}` after each connection.
 *
 * A lost connection is made again, after the last event that arrived. The end of the stream is
 * after `done`, after an answer without content, and when the signal is aborted.
 */
export async function* follow(path, { signal: abort } = {}) {
  let last = null;
  let failures = 0;
  while (!abort?.aborted) {
    try {
      const headers = last === null ? {} : { "Last-Event-ID": last };
      const response = await send("GET", path, { headers, signal: abort });
      if (response.status === 204) return;
      failures = 0;
      connectionLost.value = false;
      yield { event: "connected", data: null };
      for await (const { id, event, data } of frames(response.body)) {
        last = id ?? last;
        if (!event) continue;
        yield { event, data: parse(data) };
        if (event === "done") return;
      }
    } catch (error) {
      if (abort?.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) throw error;
    }
    if (abort?.aborted) return;
    connectionLost.value = true;
    failures += 1;
    await pause(Math.min(500 * 2 ** failures, 8000), abort);
  }
}
