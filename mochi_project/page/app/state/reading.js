// Reads what a run says, and has it drawn as often as the page can.

import { follow, part } from "../api.js";
import { apply } from "../conversation/events.js";

const DRAW_MILLISECONDS = 40;

/** Pause between two drawings of an answer, as a multiple of what the last one took. */
const PAUSE = 2;

/** Longest pause: a tab that nobody sees draws no frames, and would count as slow. */
const LONGEST_PAUSE = 500;

/** Apply the events of a run to it, from the first to its end or until `run.abort`; `draw()` shows it. */
export async function readRun(run, draw) {
  let timer = null;
  let pause = 0;
  const drawNow = () => {
    clearTimeout(timer);
    timer = null;
    const began = performance.now();
    draw();
    // What follows the next frame comes after its layout and painting.
    requestAnimationFrame(() => setTimeout(() => {
      pause = Math.min(PAUSE * (performance.now() - began), LONGEST_PAUSE);
    }));
  };
  drawNow();
  for await (const { event, data } of follow(`runs/${part(run.id)}/events`, { signal: run.abort.signal })) {
    apply(run, event, data);
    if (event !== "content_delta" && event !== "thinking_delta") drawNow();
    else timer ??= setTimeout(drawNow, Math.max(DRAW_MILLISECONDS, pause));
  }
}
