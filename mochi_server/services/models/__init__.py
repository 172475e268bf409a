"""What names of models stand for: models of providers, presets, agents."""
