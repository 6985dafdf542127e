"""A real P/D deployment on one machine: tiny model, engines, router, load."""
