"""The experiments of ``make gpu-check``; ``benchmarks/on_gpu.py`` runs them."""
