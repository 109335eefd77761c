"""The service assembled: settings, routes, workers, commands."""
