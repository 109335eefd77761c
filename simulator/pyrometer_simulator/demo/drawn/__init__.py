"""The boards without a Grafana: their own queries on Prometheus, drawn as plain HTML and SVG at Grafana's addresses."""
