"""Model providers: the base class, the registry, and one package for each service."""
