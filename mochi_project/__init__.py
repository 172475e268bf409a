"""The wiring: Django settings and the runtime at the bottom, URLs and ASGI at the top."""
