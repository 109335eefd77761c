"""What a GPU tells beyond the basics, one subject per file."""
