"""GPUs, through NVML."""
