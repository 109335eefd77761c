"""`python -m pyrometer_simulator.stack`: print where the tools are, and their versions."""

import sys

from pyrometer_simulator.stack import StackError, find_stack
from pyrometer_simulator.stack.versions import version_line


def main() -> int:
    """Print one line per tool; return 2, after one line on stderr, when a tool is missing."""
    try:
        stack = find_stack()
    except StackError as error:
        print(f"stack: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130  # a shell's status for a program ended by Ctrl-C; the cache is whole
    commands = {
        "prometheus": (str(stack.prometheus),),
        "promtool": (str(stack.promtool),),
        "alertmanager": stack.alertmanager_command,
        "amtool": stack.amtool_command,
    }
    for tool, command in commands.items():
        version = version_line(command).partition(" (")[0].partition("version ")[2]
        print(f"stack: {tool} {version}: {command[-1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
