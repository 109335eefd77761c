"""Evidence by subject: each file has its queries, the weights of its kinds of facts, and their sentences."""
