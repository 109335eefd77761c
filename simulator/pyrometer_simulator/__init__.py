"""A cluster simulated at its hardware boundaries, around the real programs."""
