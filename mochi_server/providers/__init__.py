"""Model providers: the base class, the registry, and what each service needs."""
