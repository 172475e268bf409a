"""Test mode: replies that follow from the request alone, without any network.

What a reply says is composed once (``reply``), and then sent in the words of a wire: OpenAI's
stream through the transport of that provider (``transport``), Ollama's by a server of its own
(``ollama``). docs/reference/test-mode.md is the reference.
"""
