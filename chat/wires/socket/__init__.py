"""The WebSocket ``/ws/chat``: runs, decisions and answers as frames of JSON."""
