"""A mail server on loopback that takes STARTTLS, logins and mails, and refuses what a real one would."""

from __future__ import annotations

import base64
import socketserver
import ssl
import threading
from collections import deque
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from functools import partial
from typing import Any

USER, PASSWORD = "pyrometer", "mail-s3cret"


class FakeMail:
    """Keeps the mails; one Message-ID is kept once, as mail programs do. `certificate` and `key` are PEM files."""

    def __init__(self, certificate: str, key: str) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.mails: list[EmailMessage] = []
        self.attempts = 0
        self.faults: deque[str] = deque()
        """Answers to the next mails instead of 250: `451 later`; `close` takes it and hangs up, `hang` says nothing."""
        self.released = threading.Event()
        self._server = _Server(("127.0.0.1", 0), partial(_Session, self))
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def take(self, raw: bytes) -> None:
        """Keep a mail."""
        self.attempts += 1
        mail = message_from_bytes(raw, policy=default)
        if mail["Message-ID"] not in {each["Message-ID"] for each in self.mails}:
            self.mails.append(mail)

    def __enter__(self) -> FakeMail:  # noqa: PYI034  typing.Self needs Python 3.11
        """Return itself: it listens already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Session(socketserver.StreamRequestHandler):
    timeout = 30

    def __init__(self, fake: FakeMail, *arguments: Any) -> None:  # noqa: ANN401  socketserver's own
        self._fake, self._encrypted, self._known = fake, False, False
        super().__init__(*arguments)

    def handle(self) -> None:
        self._say("220 mail.example ESMTP")
        while line := self.rfile.readline():
            verb = line.split()[0].upper().decode() if line.split() else ""
            if verb == "QUIT":
                self._say("221 bye")
                return
            if not self._answer(verb, line.decode().strip()):
                return

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # the encrypted one, which the server does not know

    def _answer(self, verb: str, line: str) -> bool:
        if verb == "EHLO":
            self._say("250-mail.example")
            self._say("250 AUTH PLAIN" if self._encrypted else "250 STARTTLS")
        elif verb == "STARTTLS":
            self._say("220 go ahead")
            self._encrypt()
        elif verb == "AUTH":
            wanted = base64.b64encode(f"\0{USER}\0{PASSWORD}".encode()).decode()
            self._known = self._encrypted and line.rsplit(maxsplit=1)[-1] == wanted
            self._say("235 welcome" if self._known else "535 5.7.8 wrong user or password")
        elif verb in ("MAIL", "RCPT", "DATA") and not self._known:
            self._say("530 5.7.0 log in first")
        elif verb == "RCPT" and "@nowhere." in line:
            self._say("550 5.1.1 no such mailbox")
        elif verb == "DATA":
            return self._data()
        else:
            self._say("250 ok")
        return True

    def _data(self) -> bool:
        self._say("354 go on")
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b"."))
        fault = self._fake.faults.popleft() if self._fake.faults else ""
        if fault not in ("", "close", "hang"):
            self._say(fault)
            return True
        self._fake.take(b"".join(lines))
        if fault:
            self._fake.released.wait(30.0 if fault == "hang" else 0.0)
            return False
        self._say("250 taken")
        return True

    def _encrypt(self) -> None:
        self.connection = self._fake.context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self._encrypted = True

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())
