// The pages beside the chats, by the first part of their address.

import { AgentsPage, HealthPage, ModelsPage, PresetsPage, ToolsPage } from "./catalogue-pages.js";
import { PromptsPage, ServersPage } from "./changing-pages.js";
import { InboxPage } from "./inbox-page.js";

export const PAGES = {
  agents: AgentsPage,
  health: HealthPage,
  inbox: InboxPage,
  models: ModelsPage,
  presets: PresetsPage,
  prompts: PromptsPage,
  servers: ServersPage,
  tools: ToolsPage,
};
