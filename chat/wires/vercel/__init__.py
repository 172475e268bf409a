"""The UI message stream of Vercel's AI SDK (docs/reference/vercel-ai.md)."""
