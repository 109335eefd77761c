"""The check of a GPU: everything that Pyrometer says about it, against loads whose truth is known."""
