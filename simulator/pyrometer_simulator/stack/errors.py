"""The only error of this package: something is missing, and one line says what to install."""

INSTALL_HINT = "install Prometheus >= 3.5 with promtool and Alertmanager >= 0.33 with amtool so that they are on PATH"


class StackError(Exception):
    """A tool is missing. `str()` is one line that says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
