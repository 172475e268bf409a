"""What every part uses: tasks, files, ids, limits, logs. Knows nothing of conversations."""
