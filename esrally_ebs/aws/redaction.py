"""Takes out of a text what must not be kept of an AWS account: key ids, account numbers, tokens, signatures.

Messages of AWS carry ARNs with the account's number; whatever is stored, logged or shown goes through here.
"""

import logging
import re

# What an id begins with says what it is of: a user, a role, a key ... (IAM's "unique identifiers").
_KINDS = "A3T[A-Z0-9]|ABIA|ACCA|AGPA|AIDA|AIPA|AKIA|ANPA|ANVA|APKA|AROA|ASCA|ASIA"
_ENCODED = "(?<=%[0-9A-Fa-f]{2})"  # in an address a colon is %3A
_KEY_ID = re.compile(rf"(?:(?<![A-Za-z0-9])|{_ENCODED})(?:{_KINDS})[A-Z0-9]{{12,}}(?![A-Z0-9])")
# After a hyphen it is an account, too (AdministratorAccess-123456789012), unless that is an id's or a UUID's.
_IDS = ("vol", "snap", "i", "fs", "fsmt", "fsap", "eni", "subnet", "sg", "vpc", "ami", "r")
_NO_ID = "".join(rf"(?<!(?<![\w-]){prefix}-)" for prefix in _IDS) + "(?<![0-9a-f]{4}-[0-9a-f]{4}-)"
_ACCOUNT = re.compile(rf"(?:(?<![0-9A-Za-z])|{_ENCODED}){_NO_ID}[0-9]{{12}}(?![0-9A-Za-z])")
# Session tokens, encoded authorization messages and signatures: nothing else of AWS has words this long.
_TOKEN = re.compile(r"[A-Za-z0-9+/=_%-]{64,}")
_METADATA_TOKEN = re.compile(r"\bAQAEA[A-Za-z0-9+/=_-]{20,}")  # of IMDSv2; 56 characters
# A secret key has 40 characters of base64; a path may have as many, and begins with a slash.
_BASE64 = "[A-Za-z0-9+/]"
_SECRET = re.compile(
    rf"(?<!{_BASE64})(?!/)(?={_BASE64}*[a-z])(?={_BASE64}*[A-Z])(?={_BASE64}*[0-9]){_BASE64}{{40,}}={{0,2}}"
)


def redacted(text: str) -> str:
    """The text with a placeholder for everything of that kind."""
    text = _KEY_ID.sub("<key>", text)
    for pattern in (_TOKEN, _METADATA_TOKEN, _SECRET):
        text = pattern.sub("<token>", text)
    return _ACCOUNT.sub("<account>", text)


def quieten_sdk() -> None:
    """Keep what the SDK logs out of Rally's log, which takes what every library says. Idempotent.

    It logs whole requests, with key id and session token, and failed refreshes with the role's ARN; what it
    has to say to us is in the errors that we raise. To be called before each use: Rally's actors give all
    loggers other settings when they start.
    """
    sdk = logging.getLogger("botocore")
    sdk.propagate = False
    if not sdk.handlers:
        sdk.addHandler(logging.NullHandler())
    # At DEBUG it logs addresses, also Elasticsearch's; those of IAM Identity Center name the account.
    logging.getLogger("urllib3.connectionpool").addFilter(_redact_record)


def _redact_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = redacted(record.getMessage()), ()
    return True
