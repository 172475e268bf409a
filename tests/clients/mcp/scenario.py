"""Lets ``client.py`` talk to the server of one scenario, and prints what it says.

python scenario.py SOCKET URL
"""

from __future__ import annotations

import json
import os
import socket
import sys

context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    client.sendall(json.dumps({"url": sys.argv[2], "context": context}).encode())
    client.shutdown(socket.SHUT_WR)
    with client.makefile("rb") as answer:
        said = json.load(answer)
sys.stdout.write("\n".join(said["lines"]))
sys.exit(said["failed"])
