"""AG-UI 1.0 (docs/reference/ag-ui.md)."""
