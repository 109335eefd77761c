"""What people do in the channel: buttons, commands, silences, answers."""
