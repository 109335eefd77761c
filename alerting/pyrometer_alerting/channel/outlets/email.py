"""E-mail by SMTP: text and HTML, the run's chart attached, all mails of an incident in one thread.

A retry has the Message-ID of the first attempt, by which mail programs drop duplicates. The subject stays the same
too: Gmail splits a thread where it changes; state and culprit are the first line of the text.
"""

from __future__ import annotations

import html
import logging
import smtplib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate

from pyrometer_alerting.channel.breaker import DeliveryFailure, Trouble
from pyrometer_alerting.channel.incident_page import blocks
from pyrometer_alerting.channel.outlets.notice import ACKNOWLEDGED, Notice, Outlet
from pyrometer_alerting.channel.slack import TIMEOUT_SECONDS
from pyrometer_alerting.channel.terminal import render

_log = logging.getLogger(__name__)

# RFC 5321, 4.3.2: the replies to DATA that are of the content (policy, size, transaction). No other is final.
_CONTENT = (550, 552, 554)
STARTTLS, IMPLICIT, NONE = "starttls", "implicit", "none"
_STYLE = (
    "body{font-family:sans-serif;max-width:46em}h2{font-size:1.1em}footer span{margin-right:1em}"
    ".dot{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.4em}"
    ".critical{background:#c4314b}.warning{background:#d97706}.info{background:#2563eb}.resolved{background:#15803d}"
    "p{white-space:pre-line}img{max-width:100%}"
)


@dataclass(frozen=True)
class Server:
    """A mail server and how to log in; `tls` is starttls, implicit (from the first byte) or none (loopback only)."""

    host: str
    port: int
    tls: str = STARTTLS
    user: str = ""
    password: str = ""
    ca_file: str = ""

    def __repr__(self) -> str:
        """Return a text without the password."""
        return f"Server({self.host}:{self.port})"


@dataclass(frozen=True, repr=False)
class Email(Outlet):
    """Sends mails from one address to some."""

    server: Server
    sender: str
    recipients: tuple[str, ...]
    takes_pictures = True

    def send(self, notice: Notice) -> None:
        """Send a mail; an acknowledgement in Slack is reported in the next one."""
        if notice.event == ACKNOWLEDGED:
            return
        with _connection(self.server) as smtp:
            refused = smtp.send_message(mail(notice, self.sender, self.recipients))
        if refused:
            _log.warning(
                "e-mail: the server refuses %s; all other recipients got the message", ", ".join(sorted(refused))
            )


def mail(notice: Notice, sender: str, recipients: tuple[str, ...]) -> EmailMessage:
    """Return the notice as a mail."""
    domain = sender.rpartition("@")[2].strip("> ")
    message = EmailMessage()
    answers = notice.thread != notice.delivery
    message["Subject"] = f"{'Re: ' if answers else ''}{notice.subject}"
    message["From"], message["To"] = sender, ", ".join(recipients)
    message["Date"] = formatdate(usegmt=True)
    message["Message-ID"] = f"<{notice.delivery}@{domain}>"
    if answers:
        message["In-Reply-To"] = message["References"] = f"<{notice.thread}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office replies
    message["X-Pyrometer-Incident"], message["X-Pyrometer-Event"] = notice.key, notice.event
    message.set_content(_text(notice))
    message.add_alternative(_html(notice), subtype="html")
    if notice.picture is not None:
        message.add_attachment(notice.picture, "image", "png", filename="mfu.png", cid="<mfu>")
    return message


def _text(notice: Notice) -> str:
    return notice.title if notice.short or not notice.message.blocks else render(notice.message)


def _html(notice: Notice) -> str:
    body = f"<p>{html.escape(notice.title)}</p>" if notice.short else blocks(notice.message)
    picture = f'<img src="cid:mfu" alt="{html.escape(notice.title, quote=True)}">' if notice.picture else ""
    return f"<!doctype html><html><head><style>{_STYLE}</style></head><body>{body}{picture}</body></html>"


@contextmanager
def _connection(server: Server) -> Iterator[smtplib.SMTP]:
    """Open, encrypt and log in; turn any error, also one raised inside, into a DeliveryFailure."""
    try:
        with _opened(server) as smtp:
            if server.user:
                smtp.login(server.user, server.password)
            yield smtp
    except smtplib.SMTPAuthenticationError as error:
        raise DeliveryFailure(Trouble.AUTH, f"login_{error.smtp_code}") from None
    except smtplib.SMTPNotSupportedError:
        raise DeliveryFailure(Trouble.AUTH, "no_starttls_or_login") from None
    except smtplib.SMTPRecipientsRefused as error:
        raise _refused("recipients", max(code for code, _text in error.recipients.values())) from None
    except smtplib.SMTPDataError as error:
        trouble = Trouble.PAYLOAD if error.smtp_code in _CONTENT else Trouble.UNKNOWN
        raise DeliveryFailure(trouble, f"data_{error.smtp_code}") from None
    except smtplib.SMTPResponseException as error:
        raise _refused("smtp", error.smtp_code) from None
    except ssl.SSLError:
        raise DeliveryFailure(Trouble.AUTH, "tls") from None
    except (smtplib.SMTPException, OSError) as error:
        raise DeliveryFailure(Trouble.AMBIGUOUS, type(error).__name__) from None


def _opened(server: Server) -> smtplib.SMTP:
    context = ssl.create_default_context(cafile=server.ca_file or None)
    if server.tls == IMPLICIT:
        return smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT_SECONDS, context=context)
    smtp = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_SECONDS)
    if server.tls == STARTTLS:
        smtp.starttls(context=context)
    return smtp


def _refused(what: str, code: int) -> DeliveryFailure:
    """Return 4xx as "later" (greylisting), 5xx as "somebody must act"."""
    return DeliveryFailure(Trouble.AUTH if code >= 500 else Trouble.SAFE, f"{what}_{code}")
