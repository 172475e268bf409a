// The pages beside the chats.

import { InboxPage } from "./inbox-page.js";

export const PAGES = { inbox: InboxPage };
