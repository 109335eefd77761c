"""The whole way on one machine: a simulated cluster, a real training loop, and the real programs around them."""
