"""The ledger: where the time of every training run went, over all its attempts."""
