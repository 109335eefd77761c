"""Jobs of the real PyTorch on the CPU, whose computing is mere waiting, under real exporters and Prometheus."""
