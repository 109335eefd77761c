"""The GPUs' error messages: heard from the driver and from the kernel's log, counted once."""
