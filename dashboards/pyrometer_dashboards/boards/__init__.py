"""The boards, one file each; a board is a module with a function ``board()``."""
