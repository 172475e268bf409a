"""The way of a request: gate, handler, bodies, errors; start and end of the process."""
