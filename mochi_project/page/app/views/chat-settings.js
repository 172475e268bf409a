// The settings of a chat as they are shown, while what was changed is being saved.

import { useRef, useState } from "../library.js";

const valuesOf = ({ options, tool_settings: ofTools, agent_settings: ofAgents }) => ({
  options: options ?? {},
  tool_settings: ofTools ?? {},
  agent_settings: ofAgents ?? {},
});

/**
 * Return `{values, policy, set, setTools}`. `settings` is a session, or what a new one will have; `save(changes)`
 * keeps some of them, ends when `settings` have them, and resolves to false when it could not; `usualPolicy` holds where they name none.
 */
export function useChatSettings(settings, usualPolicy, save) {
  const [unsaved, setUnsaved] = useState({});
  const saving = useRef(0);
  const values = { ...valuesOf(settings), ...unsaved };
  const set = async (changes) => {
    setUnsaved((before) => ({ ...before, ...changes }));
    saving.current += 1;
    const isSaved = await save(changes);
    saving.current -= 1;
    if (saving.current === 0) setUnsaved({});
    return isSaved;
  };
  const ofTools = values.tool_settings;
  const policy = ofTools.execution_policy ?? usualPolicy ?? "always_confirm";
  const setTools = (changes) =>
    set({ tool_settings: { execution_policy: policy, tools: [], ...ofTools, ...changes } });
  return { values, policy, set, setTools };
}
