// The pages beside the chats.

import { AgentsPage } from "./agents-page.js";
import { HealthPage } from "./health-page.js";
import { ImportPage } from "./import-page.js";
import { InboxPage } from "./inbox-page.js";
import { ModelsPage } from "./models-page.js";
import { NewPresetPage, PresetsPage } from "./presets-page.js";
import { NewPromptPage, PromptsPage } from "./prompts-page.js";
import { RulesPage } from "./rules-page.js";
import { ServersPage } from "./servers-page.js";
import { TagPage } from "./tag-page.js";
import { ToolsPage } from "./tools-page.js";

export const PAGES = new Map(Object.entries({
  inbox: InboxPage,
  import: ImportPage,
  models: ModelsPage,
  tools: ToolsPage,
  agents: AgentsPage,
  prompts: PromptsPage,
  "new-prompt": NewPromptPage,
  presets: PresetsPage,
  "new-preset": NewPresetPage,
  rules: RulesPage,
  servers: ServersPage,
  health: HealthPage,
  tag: TagPage,
}));
