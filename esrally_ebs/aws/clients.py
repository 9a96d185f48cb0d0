"""The only access to AWS: an operation's name and parameters in, its whole answer out; failures in one line.

Endpoints, credentials and profiles are the AWS SDK's own (``AWS_ENDPOINT_URL``, ``AWS_ENDPOINT_URL_EC2``,
``AWS_PROFILE``, an instance role ...). The region is ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the profile's,
or one that the caller found (the instance's own).
"""

import email.utils
import functools
import importlib
import logging
import os
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.kernel_trees import Roots

# Prefixes of ids: a user, a role, a key ... (IAM's "unique identifiers").
_KINDS = "A3T[A-Z0-9]|ABIA|ACCA|AGPA|AIDA|AIPA|AKIA|ANPA|ANVA|APKA|AROA|ASCA|ASIA"
_ENCODED = "(?<=%[0-9A-Fa-f]{2})"  # %3A is a colon in an address
_KEY_ID = re.compile(rf"(?:(?<![A-Za-z0-9])|{_ENCODED})(?:{_KINDS})[A-Z0-9]{{12,}}(?![A-Z0-9])")
# After a hyphen it may be an account (AdministratorAccess-123456789012), but not in ids of resources or in
# UUIDs.
_IDS = ("vol", "snap", "i", "fs", "fsmt", "fsap", "eni", "subnet", "sg", "vpc", "ami", "r")
_NO_ID = "".join(rf"(?<!(?<![\w-]){prefix}-)" for prefix in _IDS) + "(?<![0-9a-f]{4}-[0-9a-f]{4}-)"
_ACCOUNT = re.compile(rf"(?:(?<![0-9A-Za-z])|{_ENCODED}){_NO_ID}[0-9]{{12}}(?![0-9A-Za-z])")
# Session tokens, encoded authorization messages and signatures: AWS has no other words of this length.
_TOKEN = re.compile(r"[A-Za-z0-9+/=_%-]{64,}")
_METADATA_TOKEN = re.compile(r"\bAQAEA[A-Za-z0-9+/=_-]{20,}")  # IMDSv2's; 56 characters
# A secret key has 40 characters of base64; paths may have as many, but begin with a slash.
_BASE64 = "[A-Za-z0-9+/]"
_SECRET = re.compile(
    rf"(?<!{_BASE64})(?!/)(?={_BASE64}*[a-z])(?={_BASE64}*[A-Z])(?={_BASE64}*[0-9]){_BASE64}{{40,}}={{0,2}}"
)

REHEARSAL_VARIABLE = "ESRALLY_EBS_REHEARSE_AWS"  # names an instance; then AWS itself must not be reached
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CONNECT_S = 5.0
_READ_S = 30.0
_PAGE_SIZE = 500  # items per answer: volumes, instances or modifications
_ATTEMPTS = 5  # per call, in the SDK's "standard" mode: back-off with jitter, also when throttled
_IAM_PREFIX: Mapping[str, str] = {"efs": "elasticfilesystem"}  # where it differs from the service's name
_DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
THROTTLED = frozenset(
    {
        *("Throttling", "ThrottlingException", "ThrottledException", "EC2ThrottledException"),
        *("RequestThrottled", "RequestThrottledException", "TooManyRequestsException", "SlowDown"),
        *("RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException"),
        *("ProvisionedThroughputExceededException", "TransactionInProgressException"),
        "PriorRequestNotComplete",
    }
)
_UNANSWERED = frozenset({"ReadTimeoutError", "ConnectionClosedError", "ResponseParserError"})
_PASSING = THROTTLED | {"InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable"}
_STALE = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "AuthFailure", "InvalidClientTokenId"}
)
# What AWS says of a request that was signed too long ago or in the future, besides those of _STALE.
_SIGNED = frozenset({"SignatureDoesNotMatch", "InvalidSignatureException", "RequestTimeTooSkewed"})
_CLOCK_MATTERS_S = 240.0  # AWS takes signatures of five minutes
# Which policy a denial is of. What the role's own allows does not count against the others.
_DENIAL = re.compile(r"(explicit deny in an?|because no) ([A-Za-z -]*?(?:policy|boundary))")
_OF_THE_ROLE = "because no identity-based policy"
# Kinds of credentials that last as long as the instance, the container or its account does.
_RENEWED = ("iam-role", "container-role", "assume-role-with-web-identity")
_NEXT_STEP: Mapping[str, str] = {
    "NoCredentialsError": "give the instance a role, or set AWS_PROFILE",
    "PartialCredentialsError": "set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "ProfileNotFound": "correct AWS_PROFILE",
    "NoRegionError": "set AWS_REGION",
    "EndpointConnectionError": "check the network, AWS_REGION and AWS_ENDPOINT_URL",
    "ConnectTimeoutError": "check the network, AWS_REGION and AWS_ENDPOINT_URL",
    "ConnectionClosedError": "check the network, then try again",
    "ReadTimeoutError": "try again",
    "ResponseParserError": "see what answers at AWS_ENDPOINT_URL or at a proxy, then try again",
    "ValueError": "correct AWS_ENDPOINT_URL (http://HOST:PORT) and AWS_REGION",
    "JSONDecodeError": "correct credential_process of the AWS profile",
}
_CREDENTIALS_STEP = "correct where credentials are from (credential_process, AWS_WEB_IDENTITY_TOKEN_FILE ...)"


def redacted(text: str) -> str:
    """The text without an AWS account's secrets: key ids, account numbers, tokens, signatures.

    AWS's messages contain ARNs with the account's number; everything stored, logged or shown passes through
    here.
    """
    text = _KEY_ID.sub("<key>", text)
    for pattern in (_TOKEN, _METADATA_TOKEN, _SECRET):
        text = pattern.sub("<token>", text)
    return _ACCOUNT.sub("<account>", text)


def quieten_sdk() -> None:
    """Keep the SDK's messages out of Rally's log, which collects those of all libraries. Idempotent.

    The SDK logs whole requests, with key id and session token, and failed refreshes with the role's ARN; our
    errors have everything we need from it. Call this before each use: Rally's actors reset all loggers when
    they start.
    """
    sdk = logging.getLogger("botocore")
    sdk.propagate = False
    if not sdk.handlers:
        sdk.addHandler(logging.NullHandler())
    # At DEBUG it logs addresses, including Elasticsearch's; IAM Identity Center's contain the account.
    logging.getLogger("urllib3.connectionpool").addFilter(_redact_record)


def _redact_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = redacted(record.getMessage()), ()
    return True


class AwsError(SetupError):
    """A call to AWS failed; ``code`` is AWS's error code, e.g. ``InvalidVolume.NotFound``."""

    def __init__(self, action: str, code: str, message: str) -> None:
        super().__init__(f"AWS {action}: {message}")
        self.action = action
        self.code = code
        self.message = message

    @property
    def denied(self) -> bool:
        """Whether no policy allows the call."""
        return self.code in _DENIED

    @property
    def unanswered(self) -> bool:
        """Whether the call's outcome is unknown."""
        return self.code in _UNANSWERED

    @property
    def passes(self) -> bool:
        """Whether AWS says to try again later; the SDK already has, several times."""
        return self.code in _PASSING

    def __reduce__(self) -> tuple[type["AwsError"], tuple[str, str, str]]:
        """For other processes: by default only an exception's text is pickled."""
        return type(self), (self.action, self.code, self.message)


class Api(Protocol):
    """Something that answers calls: AWS, or a stand-in."""

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        """The answer to one call. Raises AwsError if there is none."""


class Aws:
    """Calls in one region, a client per service. ``on_call`` gets each call's IAM action beforehand."""

    def __init__(
        self,
        region: str | None = None,
        *,
        on_call: Callable[[str], None] = lambda action: None,
        roots: Roots | None = None,
    ) -> None:
        self.region = region or configured_region()
        self._on_call = on_call
        self._roots = roots or Roots()
        self._session: Any = None
        self._clients: dict[str, Any] = {}
        self._making = threading.Lock()
        # our clock minus AWS's at the first answer; AWS gives whole seconds
        self.clock_off_s: float | None = None

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        """One call, e.g. ``call("ec2", "DescribeVolumes", VolumeIds=[...])``, with all pages of its answer.

        Retried as the SDK does. Raises AwsError, whose message is redacted.
        """
        action = action_of(service, operation)
        self._on_call(action)
        botocore, parsers = _sdk("botocore.exceptions"), _sdk("botocore.parsers")
        try:
            return _answer(self._client(service), _sdk("botocore").xform_name(operation), params)
        except botocore.ClientError as error:
            raise _refused(action, error) from None  # the cause may contain an account number
        # ValueError: an invalid endpoint; OSError: a file or program that should provide credentials
        except (botocore.BotoCoreError, parsers.ResponseParserError, ValueError, OSError) as error:
            raise _unreached(action, error) from None

    def _hear(self, *, parsed: Mapping[str, Any], **_: object) -> None:
        """Handle the SDK's event of an answer."""
        if self.clock_off_s is None:
            self.clock_off_s = _clock_off_s(parsed, time.time())

    def _client(self, service: str) -> Any:  # noqa: ANN401 - boto3 makes its classes at run time
        with self._making:
            if service not in self._clients:
                config = _sdk("botocore.config").Config(
                    connect_timeout=_CONNECT_S,
                    read_timeout=_READ_S,
                    retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                    user_agent_appid="esrally-ebs",
                )
                self._session = self._session or _session(self._roots)
                client = self._session.client(service, region_name=self.region, config=config)
                client.meta.events.register("after-call", self._hear)
                self._clients[service] = client
            return self._clients[service]


def _answer(client: Any, name: str, params: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ANN401
    """The answer to a call: all pages as one; for an object, with its bytes."""
    if not client.can_paginate(name):
        answer: Mapping[str, Any] = getattr(client, name)(**params)
        return {**answer, "Body": answer["Body"].read()} if "Body" in answer else answer
    # EC2 accepts a page size with filters, not with ids; without one it refuses very large accounts
    config = {"PageSize": _PAGE_SIZE} if "Filters" in params else {}
    whole: Mapping[str, Any] = (
        client.get_paginator(name).paginate(**params, PaginationConfig=config).build_full_result()
    )
    return whole


def credentials_end(roots: Roots) -> float | None:
    """When the credentials end (seconds since the epoch), unless they are renewed automatically.

    None if unknown. Asks AWS only what the SDK needs for a role or a login.
    """
    botocore = _sdk("botocore.exceptions")
    try:
        credentials = _session(roots).get_credentials()
        if credentials is None or credentials.method in _RENEWED:
            return None
        credentials.get_frozen_credentials()  # fetches a role's credentials
    except (botocore.BotoCoreError, botocore.ClientError, ValueError, OSError):
        return None  # the first call gives a better message
    end = getattr(credentials, "_expiry_time", None)  # the SDK has no public name for it
    return None if end is None else float(end.timestamp())


def leads_here(url: str) -> bool:
    """Whether a URL leads to this machine."""
    try:
        return urllib.parse.urlsplit(url).hostname in _LOOPBACK
    except ValueError:
        return False


def action_of(service: str, operation: str) -> str:
    """The action's name in IAM policies: ``ec2:DescribeVolumes``."""
    return f"{_IAM_PREFIX.get(service, service)}:{operation}"


def configured_region() -> str | None:
    """The region from the environment or the profile; None without either."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if named:
        return named
    botocore = _sdk("botocore.exceptions")
    try:
        region: str | None = _sdk("boto3").Session().region_name
    except (botocore.BotoCoreError, ValueError) as error:
        raise _unreached("session", error) from None
    return region


def _session(roots: Roots) -> Any:  # noqa: ANN401
    """An SDK session that uses the metadata service's credentials only on EC2: elsewhere nobody is asked.

    In a rehearsal it signs nothing for AWS itself, including the SDK's own calls (STS for a role).
    """
    core = _sdk("botocore.session").Session()
    core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
    core.register("before-sign", _check_rehearsal)
    if not roots.on_ec2():
        core.get_component("credential_provider").remove("iam-role")
    return _sdk("boto3").Session(botocore_session=core)


@functools.cache
def _loader(data_path: str | None) -> Any:  # noqa: ANN401
    """The SDK's loader of service descriptions, shared by all sessions of this process.

    EC2's description takes most of the time of making a client. Sessions keep their own credentials and
    settings.
    """
    return _sdk("botocore.loaders").create_loader(data_path)


def _check_rehearsal(*, event_name: str, request: Any, **_: object) -> None:  # noqa: ANN401
    """Raise SetupError if a rehearsal would call AWS itself: some variables override AWS_ENDPOINT_URL."""
    if os.environ.get(REHEARSAL_VARIABLE) and not leads_here(request.url):
        service = event_name.split(".")[1]
        raise SetupError(
            f"{REHEARSAL_VARIABLE}: {service} would be asked at {redacted(request.url)}, not at a stand-in on"
            f" this machine; unset AWS_ENDPOINT_URL_{service.upper()} and AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"
        )


def _clock_off_s(answer: Mapping[str, Any], now_s: float) -> float | None:
    """Our clock minus the answer's header; the header is accurate to half a second."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return now_s - email.utils.parsedate_to_datetime(date).timestamp() - 0.5 if date else None
    except ValueError:
        return None


def _sdk(module: str) -> Any:  # noqa: ANN401 - the SDK has no types
    """A module of the SDK, imported now: sessions without AWS need no boto3."""
    quieten_sdk()
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SetupError(
            "boto3: not installed, and AWS is asked through it; pip install 'esrally_ebs[aws]'"
        ) from error


def _refused(action: str, error: Any) -> AwsError:  # noqa: ANN401
    reply = error.response.get("Error", {})
    code = str(reply.get("Code", "unknown"))
    message = redacted(" ".join(str(reply.get("Message", "")).split()))
    off_s = _clock_off_s(error.response, time.time())
    if code in _DENIED:
        text = _denied(code, message)
    elif code in _STALE | _SIGNED and off_s is not None and abs(off_s) > _CLOCK_MATTERS_S:
        text = (
            f"{code}: the clock here is {off_s:+.0f} s off AWS's, which takes five minutes; set it (chrony)"
        )
    elif code in _STALE:
        text = f"{code}: the credentials are not, or no longer, valid; renew them"
    elif code in _PASSING:
        text = f"{code}: {message.rstrip('.')}; try again later"
    else:
        text = f"{code}: {message}"
    return AwsError(action, code, text)


def _denied(code: str, message: str) -> str:
    denial = _DENIAL.search(message)
    if denial is None or denial[0] == _OF_THE_ROLE:
        return f"not allowed ({code}); add it to the role's policy, see docs/aws.md"
    why = f"no {denial[2]} allows it" if denial[1] == "because no" else denial[0]
    return f"not allowed ({code}: {why}); ask whoever keeps that policy, the role's own cannot allow it"


def _unreached(action: str, error: Exception) -> AwsError:
    kind = type(error).__name__
    message = redacted(" ".join(str(error).split()))
    step = _CREDENTIALS_STEP if isinstance(error, OSError) else _NEXT_STEP.get(kind)
    return AwsError(action, kind, f"{message}; {step}" if step else message)
