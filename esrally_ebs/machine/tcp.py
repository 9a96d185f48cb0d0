"""``/proc/net/tcp`` -> what the kernel knows of each TCP socket over IPv4.

Source: Documentation/networking/proc_net_tcp; states from include/net/tcp_states.h.
"""

from dataclasses import dataclass

from esrally_ebs.errors import FormatError

ESTABLISHED, CLOSE_WAIT = 0x01, 0x08


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSocket:
    """One end of a connection, or a listener; also one that no process has accepted yet."""

    local_port: int
    state: int
    unread_bytes: int  # that the peer has sent and nobody has read; of a listener, callers that wait


def parse_tcp(text: str, source: str) -> list[TcpSocket]:
    """The sockets in the text of /proc/net/tcp; FormatError names ``source`` and the line."""
    sockets = []
    for number, line in enumerate(text.splitlines()[1:], start=2):
        words = line.split()
        try:
            state = int(words[3], 16)
            unread = int(words[4].split(":")[1], 16)
            port = int(words[1].split(":")[1], 16)
        except (IndexError, ValueError) as error:
            raise FormatError(f"{source}:{number}: not a line of /proc/net/tcp: {line!r}") from error
        # The end of a connection counts as one byte that is read.
        end = 1 if state == CLOSE_WAIT and unread else 0
        sockets.append(TcpSocket(local_port=port, state=state, unread_bytes=unread - end))
    return sockets
