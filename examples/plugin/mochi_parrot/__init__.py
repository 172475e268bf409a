"""What a package can bring to mochi-server: a provider and a tool."""
