"""The daily and weekly digest: its data, message, page, pictures and schedule."""
