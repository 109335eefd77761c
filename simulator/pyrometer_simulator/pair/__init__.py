"""Two Prometheis that scrape the same nodes, and what stands above them, with the configuration of our pages."""
