"""Two Prometheis that scrape the same nodes, and Thanos or Mimir above them, with the configuration of our pages."""
