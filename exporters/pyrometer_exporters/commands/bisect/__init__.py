"""The program ``pyrometer-bisect``: which hosts, pairs of hosts or switches make a test fail?"""
