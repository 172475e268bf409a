"""System prompt files over HTTP: the face of mochi_server.services.system_prompts."""
