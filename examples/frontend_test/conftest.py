pytest_plugins = ["mochi_server.testing"]
