"""Bodies and answers of the routes of turns and models, a module for each topic."""
