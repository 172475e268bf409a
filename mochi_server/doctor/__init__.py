"""The checks of the command ``doctor``; they change nothing."""
