"""The values of a GPU beyond the basics, one subject per file."""
