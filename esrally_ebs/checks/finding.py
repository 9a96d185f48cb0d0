"""What a guard finds: its name with evidence, what that means, and how it is mended."""

from collections.abc import Iterable

from esrally_ebs.model import Check, Severity


def good(name: str, value: str, text: str) -> Check:
    """Nothing is wrong."""
    return Check(name=name, ok=True, value=value, text=text)


def bad(name: str, text: str, mend: str, *, value: str = "", severity: Severity = Severity.STOP) -> Check:
    """Something is: ``text`` is the evidence, ``mend`` the next step."""
    return Check(name=name, ok=False, value=value, text=f"{text}; {mend}", severity=severity, mend=mend)


def unknown(name: str, text: str, mend: str) -> Check:
    """Nobody could tell."""
    return bad(name, text, mend, value="unknown", severity=Severity.UNKNOWN)


def listed(parts: Iterable[str]) -> str:
    """Parts of a sentence."""
    return ", ".join(parts)
