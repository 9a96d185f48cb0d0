"""Takes out of a text what must not be kept of an AWS account: key ids, account numbers, tokens, signatures.

Messages of AWS carry ARNs with the account's number; whatever is stored, logged or shown goes through here.
"""

import re

_KEY_ID = re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA|ANVA)[A-Z0-9]{12,}\b")
# After a hyphen it is an account, too (AdministratorAccess-123456789012), unless that is an id's or a UUID's.
_IDS = ("vol", "snap", "i", "fs", "fsmt", "fsap", "eni", "subnet", "sg", "vpc", "ami", "r")
_NO_ID = "".join(rf"(?<!(?<![\w-]){prefix}-)" for prefix in _IDS) + "(?<![0-9a-f]{4}-[0-9a-f]{4}-)"
_ACCOUNT = re.compile(rf"(?<![0-9A-Za-z]){_NO_ID}[0-9]{{12}}(?![0-9A-Za-z])")
# Session tokens, encoded authorization messages and signatures: nothing else of AWS has words this long.
_TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{64,}")


def redacted(text: str) -> str:
    """The text with a placeholder for everything of that kind."""
    text = _TOKEN.sub("<token>", text)
    text = _KEY_ID.sub("<key>", text)
    return _ACCOUNT.sub("<account>", text)
