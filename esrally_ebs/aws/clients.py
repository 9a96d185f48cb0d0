"""The one door to AWS: an operation's name and parameters in, its answer out, every failure one line.

Endpoints, credentials and profiles are the AWS SDK's own (``AWS_ENDPOINT_URL``, ``AWS_ENDPOINT_URL_EC2``,
``AWS_PROFILE``, an instance role ...). The region is ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the profile's,
or whatever the caller found (the instance's own).
"""

import email.utils
import functools
import importlib
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from esrally_ebs.aws.redaction import redacted
from esrally_ebs.aws.roots import Roots
from esrally_ebs.errors import SetupError

REHEARSAL_VARIABLE = "ESRALLY_EBS_REHEARSE_AWS"  # names an instance; AWS itself must not be reached then
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CONNECT_S = 5.0
_READ_S = 30.0
_ATTEMPTS = 5  # of one call, the SDK's "standard" mode: back-off with jitter, throttling included
_IAM_PREFIX: Mapping[str, str] = {"efs": "elasticfilesystem"}  # where it is not the service's own name
_DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
THROTTLED = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"}
)
_UNANSWERED = frozenset({"ReadTimeoutError", "ConnectionClosedError"})
_PASSING = THROTTLED | {"InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable"}
_STALE = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "AuthFailure", "InvalidClientTokenId"}
)
_NEXT_STEP: Mapping[str, str] = {
    "NoCredentialsError": "give the instance a role, or set AWS_PROFILE",
    "PartialCredentialsError": "set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "ProfileNotFound": "correct AWS_PROFILE",
    "NoRegionError": "set AWS_REGION",
    "EndpointConnectionError": "check the network, AWS_REGION and AWS_ENDPOINT_URL",
    "ConnectTimeoutError": "check the network, AWS_REGION and AWS_ENDPOINT_URL",
    "ConnectionClosedError": "check the network, then try again",
    "ReadTimeoutError": "try again",
    "ValueError": "correct AWS_ENDPOINT_URL (http://HOST:PORT) and AWS_REGION",
}


class AwsError(SetupError):
    """AWS did not do what it was asked for; ``code`` is its own word, e.g. ``InvalidVolume.NotFound``."""

    def __init__(self, action: str, code: str, message: str) -> None:
        super().__init__(f"AWS {action}: {message}")
        self.action = action
        self.code = code
        self._message = message

    @property
    def denied(self) -> bool:
        """Whether no policy allows the call."""
        return self.code in _DENIED

    @property
    def unanswered(self) -> bool:
        """Whether nobody knows what came of the call."""
        return self.code in _UNANSWERED

    @property
    def passes(self) -> bool:
        """Whether AWS asks to try again later, which the SDK has done a few times already."""
        return self.code in _PASSING

    def __reduce__(self) -> tuple[type["AwsError"], tuple[str, str, str]]:
        """For other processes: an exception is otherwise made anew from its text alone."""
        return type(self), (self.action, self.code, self._message)


class Api(Protocol):
    """Whoever answers calls: AWS itself, or a stand-in that fails when it is told to."""

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        """The answer to one call; AwsError when there is none."""


def _ignore(action: str) -> None:
    """Nobody counts the calls."""


class Aws:
    """Calls of one region, a client per service. ``on_call`` hears the IAM action of each call first."""

    def __init__(
        self,
        region: str | None = None,
        *,
        on_call: Callable[[str], None] = _ignore,
        roots: Roots | None = None,
    ) -> None:
        self.region = region or configured_region()
        self._on_call = on_call
        self._roots = roots or Roots()
        self._session: Any = None
        self._clients: dict[str, Any] = {}
        self._making = threading.Lock()
        self.clock_off_s: float | None = (
            None  # ours against AWS's at the first answer, which has whole seconds
        )

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        """One call, e.g. ``call("ec2", "DescribeVolumes", VolumeIds=[...])``; retried as the SDK does.

        Raises AwsError. What the message says of account, keys and tokens is taken out.
        """
        action = action_of(service, operation)
        self._on_call(action)
        botocore = _sdk("botocore.exceptions")
        try:
            client = self._client(service)
            answer: Mapping[str, Any] = getattr(client, _sdk("botocore").xform_name(operation))(**params)
        except botocore.ClientError as error:
            raise _refused(action, error) from None  # the cause's text may hold an account number
        except (botocore.BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is no address
            raise _unreached(action, error) from None
        if self.clock_off_s is None:
            self.clock_off_s = _clock_off_s(answer, time.time())
        return answer

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
                self._clients[service] = self._session.client(service, region_name=self.region, config=config)
            return self._clients[service]


def leads_here(url: str) -> bool:
    """Whether an address is one of this machine's own."""
    try:
        return urllib.parse.urlsplit(url).hostname in _LOOPBACK
    except ValueError:
        return False


def items(api: Api, service: str, operation: str, key: str, **params: Any) -> Iterator[Any]:  # noqa: ANN401
    """What stands under ``key`` in the answer and its further pages, which are fetched as needed."""
    while True:
        answer = api.call(service, operation, **params)
        yield from answer.get(key, ())
        if not answer.get("NextToken"):
            return
        params = {**params, "NextToken": answer["NextToken"]}


def action_of(service: str, operation: str) -> str:
    """The action as IAM policies write it: ``ec2:DescribeVolumes``."""
    return f"{_IAM_PREFIX.get(service, service)}:{operation}"


def configured_region() -> str | None:
    """The region of the environment or of the profile; None when neither names one."""
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
    """A session whose credentials come from the metadata service only on EC2: elsewhere nobody is asked.

    In a rehearsal it signs nothing for AWS itself, also not what the SDK asks for by itself (STS for a role).
    """
    core = _sdk("botocore.session").Session()
    core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
    core.register("before-sign", _check_rehearsal)
    if not roots.on_ec2():
        core.get_component("credential_provider").remove("iam-role")
    return _sdk("boto3").Session(botocore_session=core)


@functools.cache
def _loader(data_path: str | None) -> Any:  # noqa: ANN401
    """What reads the SDK's descriptions of services and keeps them: one for all sessions of this process.

    EC2's alone takes most of the time of making a client. Credentials and settings stay each session's own.
    """
    return _sdk("botocore.loaders").create_loader(data_path)


def _check_rehearsal(*, event_name: str, request: Any, **_: object) -> None:  # noqa: ANN401
    """SetupError when a rehearsal would ask AWS itself: some variables overrule AWS_ENDPOINT_URL."""
    if os.environ.get(REHEARSAL_VARIABLE) and not leads_here(request.url):
        service = event_name.split(".")[1]
        raise SetupError(
            f"{REHEARSAL_VARIABLE}: {service} would be asked at {redacted(request.url)}, not at a stand-in on"
            f" this machine; unset AWS_ENDPOINT_URL_{service.upper()} and AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"
        )


def _clock_off_s(answer: Mapping[str, Any], now_s: float) -> float | None:
    """How much later it is here than the answer's header says; half a second is the header's own doubt."""
    told = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return now_s - email.utils.parsedate_to_datetime(told).timestamp() - 0.5 if told else None
    except ValueError:
        return None


def _sdk(module: str) -> Any:  # noqa: ANN401 - the SDK has no types
    """A module of the SDK, imported now: sessions that need no AWS need no boto3 either."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SetupError(
            "boto3: not installed, and AWS is asked through it; pip install 'esrally_ebs[aws]'"
        ) from error


def _refused(action: str, error: Any) -> AwsError:  # noqa: ANN401
    told = error.response.get("Error", {})
    code = str(told.get("Code", "unknown"))
    message = redacted(" ".join(str(told.get("Message", "")).split()))
    if code in _DENIED:
        text = f"not allowed ({code}); add it to the role's policy, see docs/aws.md"
    elif code in _STALE:
        text = f"{code}: the credentials are not, or no longer, valid; renew them"
    else:
        text = f"{code}: {message}"
    return AwsError(action, code, text)


def _unreached(action: str, error: Exception) -> AwsError:
    kind = type(error).__name__
    message = redacted(" ".join(str(error).split()))
    step = _NEXT_STEP.get(kind)
    return AwsError(action, kind, f"{message}; {step}" if step else message)
