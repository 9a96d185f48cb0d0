"""Remote calls of a class's methods: one process asks another, by name, in lines of JSON.

{"operation": NAME, "arguments": {...}}
{"say": TEXT} ... {"result": ...} or {"error": {"kind": CLASS, "text": TEXT}}

The lines go over a Unix socket (``keeper.py``), SSH (``host.py``) or TCP (``rally/coordinator_service.py``).
"""

import inspect
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO

from pydantic import TypeAdapter, ValidationError, validate_call

from esrally_ebs import errors
from esrally_ebs.errors import EbsError, PlanError, SetupError

Say = Callable[[str], None]
Arguments = dict[str, Any]  # a step's arguments by name
Gives = Callable[[Any], Any]
_ERROR_SIGNS = 500  # characters of an error in an answer, as it may quote the request


def say_nothing(text: str) -> None:
    """Ignore progress messages."""


def line_of(value: object) -> bytes:
    """A value as one line of JSON."""
    return _JSON.dump_json(value) + b"\n"


def request_line(operation: str, arguments: Mapping[str, object]) -> bytes:
    """The request for a step, as a line."""
    return line_of({"operation": operation, "arguments": arguments})


def result_of(answer: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the step gives
    """The result in an answer; raises the answer's error instead, if there is one."""
    if "error" in answer:
        raise error_of(answer["error"])
    return answer["result"]


def error_of(answer: Mapping[str, str]) -> EbsError:
    """The error that an answer made by ``refusal`` stands for."""
    return (error_named(answer["kind"]) or SetupError)(answer["text"])


def error_named(name: str) -> type[EbsError] | None:
    """The EbsError class of that name; None for other names, which ``errors`` also has."""
    kind = getattr(errors, str(name), None)
    return kind if isinstance(kind, type) and issubclass(kind, EbsError) else None


def refusal(error: Exception) -> dict[str, Any]:
    """An error as a one-line answer."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        error = PlanError(f"request: {where}: {first['msg']}"[:_ERROR_SIGNS])
    elif not isinstance(error, EbsError):
        error = SetupError(f"{type(error).__name__}: {error}"[:_ERROR_SIGNS])
    return {"error": {"kind": type(error).__name__, "text": str(error)}}


class Asking:
    """Stands in for an object of the class ``steps``: each method call goes to ``_ask``."""

    def __init__(self, steps: type) -> None:
        self._steps = steps

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"{name} is nothing that can be asked for")
        signature, gives = _takes_and_gives(getattr(self._steps, name))

        def ask(*values: object, **named: object) -> Any:  # noqa: ANN401 - what the step gives
            bound = signature.bind(None, *values, **named).arguments
            del bound["self"]
            return self._ask(name, bound, bound.pop("say", say_nothing), gives.validate_python)

        return ask

    def _ask(self, step: str, arguments: Arguments, say: Say, gives: Gives) -> Any:  # noqa: ANN401
        """The step's result, validated by ``gives``; passes progress messages on to ``say``."""
        raise NotImplementedError


@cache
def _takes_and_gives(step: Callable[..., Any]) -> tuple[inspect.Signature, TypeAdapter[Any]]:
    signature = inspect.signature(step)
    return signature, TypeAdapter(signature.return_annotation)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    operation: str
    arguments: dict[str, Any]


class Answering:
    """Performs the allowed steps of an object; a call that does not fit a step's signature is refused."""

    def __init__(self, steps: object, operations: Sequence[str]) -> None:
        self._calls = {name: validate_call(getattr(steps, name)) for name in operations}

    def perform(self, operation: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """The step's result. Raises the step's errors, and PlanError for an unknown step."""
        if operation not in self._calls:
            raise PlanError("request: operation: there is no such operation")
        return self._calls[operation](**arguments)

    def answer(
        self, line: bytes, given: Sequence[int] = (), say: Say = say_nothing
    ) -> tuple[dict[str, Any], BinaryIO | None]:
        """The answer to a request with these descriptors, and a file to send with it, if any."""
        try:
            request = _REQUEST.validate_json(line)
            arguments = dict(request.arguments)
            if request.operation == "attach":
                arguments["say"] = say
            if request.operation == "lend":
                if len(given) != 1:
                    raise PlanError("request: a directory comes as one descriptor")
                arguments["data"] = given[0]
            result = self.perform(request.operation, arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears of it
            return refusal(error), None
        is_file = isinstance(result, io.BufferedReader)
        return ({"result": None}, result) if is_file else ({"result": result}, None)


_JSON: TypeAdapter[Any] = TypeAdapter(Any)
_REQUEST = TypeAdapter(StepRequest)
