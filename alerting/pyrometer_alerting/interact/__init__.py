"""Interaction in the channel: buttons, commands, silences, answers."""
