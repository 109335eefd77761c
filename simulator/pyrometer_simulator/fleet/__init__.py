"""A cluster of any size as the metrics that its exporters would serve, without the exporters: for scale and for boards.

The demo runs real exporters on simulated hardware, for eight nodes. This is for 511: the contract's names and labels
with values that are functions of time, so that every moment of the past can be written as well as the present. A test
holds the names and labels to those that the exporters define.
"""
