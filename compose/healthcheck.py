#!/usr/bin/env -S python3 -I -S
"""Check that the program of this container is ready to do its work: the images' health check. Exit status 0 or 1.

    healthcheck [URL]        else $PYROMETER_HEALTH_URL

The URL is that of readiness, /-/ready: a program that can write nothing still answers /-/healthy. With passwords in
--web.config.file the answer is 401, which shows only that the program lives. A port that answers http by no HTTP is
asked by https: that file may ask for TLS. A certificate is not verified, as it names the host and not 127.0.0.1. A
socket and not urllib, which takes ten times as long to import.
"""

import os
import socket
import sys


def main() -> int:
    """Ask; say what came, which `docker inspect` shows."""
    url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PYROMETER_HEALTH_URL", "")
    scheme, _, rest = url.partition("://")
    where, _, path = rest.partition("/")
    host, _, port = where.rpartition(":")
    if scheme not in ("http", "https") or not host or not port.isdecimal():
        sys.stderr.write(f"healthcheck: {url!r} is not http://host:port/path; give it or set PYROMETER_HEALTH_URL\n")
        return 1
    try:
        status = ask_either(scheme, host.strip("[]"), int(port), f"/{path}")
    except (OSError, ValueError) as error:
        sys.stderr.write(f"healthcheck: {url}: {error}\n")
        return 1
    sys.stdout.write(f"{url}: {status}\n")
    return 0 if status < 400 or status in (401, 403) else 1


def ask_either(scheme: str, host: str, port: int, path: str) -> int:
    """Return the HTTP status, by https where http finds another protocol.

    Raises:
        OSError, ValueError: There was none.
    """
    try:
        return ask(scheme, host, port, path)
    except ConnectionRefusedError:
        raise
    except (OSError, ValueError) as error:
        if scheme == "https":
            raise
        try:
            return ask("https", host, port, path)
        except (OSError, ValueError):
            raise error from None


def ask(scheme: str, host: str, port: int, path: str) -> int:
    """Return the HTTP status of a GET.

    Raises:
        OSError, ValueError: There was none within 3 s.
    """
    with socket.create_connection((host, port), timeout=3) as plain:
        connection = with_tls(plain) if scheme == "https" else plain
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        words = connection.recv(64).split(b" ")
    if len(words) < 2 or not words[0].startswith(b"HTTP/"):
        raise ValueError("the answer is not HTTP")
    return int(words[1])


def with_tls(plain: socket.socket) -> socket.socket:
    """Return the connection, encrypted."""
    import ssl  # noqa: PLC0415  20 ms that plain HTTP need not pay

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)


if __name__ == "__main__":
    sys.exit(main())
