"""The service put together: settings, routes, workers, commands."""
