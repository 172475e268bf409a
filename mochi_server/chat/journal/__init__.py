"""The journal of runs: what each run has said and done, for readers and processes to come."""
