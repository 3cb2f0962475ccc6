"""Running code in a sandbox, and its stateful contexts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paddock.client.answers import (
    CodeContext,
    CodeEnded,
    CodeEvent,
    CodeOutput,
    CodeRaised,
    CodeResult,
    CodeShown,
    CodeStarted,
    Done,
)
from paddock.client.call import ApiCall, StreamCall, answer, event, given, listed, nothing
from paddock.client.calls.sandboxes import SERVER_COMMAND_TIMEOUT, sandbox_path
from paddock.client.errors import from_event
from paddock.client.retry import Repeat
from paddock.client.sse import EventDecoder, ServerSentEvent


def run_code(
    sandbox_id: str,
    code: str,
    language: str | None = None,
    *,
    context_id: str | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
) -> ApiCall[CodeResult]:
    """Run code, by default Python, in a context that keeps earlier definitions.

    Failing code is an answer (see ``error``), not an exception of the client. After ``timeout`` seconds the code is
    interrupted, and the answer has its output so far. Never retried.
    """
    return ApiCall(
        method="POST",
        path="/sandboxes/run-code",
        json=given(
            sandbox_id=sandbox_id, code=code, language=language, context_id=context_id, timeout=timeout, env=env
        ),
        server_wait=SERVER_COMMAND_TIMEOUT if timeout is None else timeout,
        read=answer(CodeResult),
        repeat=Repeat.UNSENT,
    )


def stream_code(
    sandbox_id: str,
    code: str,
    language: str | None = None,
    *,
    context_id: str | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
) -> StreamCall[CodeEvent]:
    """Run code and stream its events: ``started``, ``output`` and ``result``, ``exception`` if it fails, ``end``.

    The code is interrupted if the reader stops reading.
    """
    return StreamCall(
        call=ApiCall(
            method="POST",
            path="/sandboxes/run-code",
            json=given(
                sandbox_id=sandbox_id,
                code=code,
                language=language,
                context_id=context_id,
                timeout=timeout,
                env=env,
                stream=True,
            ),
            read=nothing,
            repeat=Repeat.UNSENT,
        ),
        decoder=_CodeEvents,
    )


def create_code_context(
    sandbox_id: str, language: str | None = None, *, cwd: str | None = None
) -> ApiCall[CodeContext]:
    """Create a context. Never retried."""
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "code-contexts"),
        json=given(language=language, cwd=cwd),
        read=answer(CodeContext),
        repeat=Repeat.UNSENT,
    )


def list_code_contexts(sandbox_id: str) -> ApiCall[list[CodeContext]]:
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "code-contexts"), read=listed(CodeContext, "contexts"))


def restart_code_context(sandbox_id: str, context_id: str) -> ApiCall[Done]:
    """Restart the context's kernel: all definitions are lost."""
    return ApiCall(
        method="POST", path=sandbox_path(sandbox_id, "code-contexts", context_id, "restart"), read=answer(Done)
    )


def delete_code_context(sandbox_id: str, context_id: str) -> ApiCall[Done]:
    return ApiCall(method="DELETE", path=sandbox_path(sandbox_id, "code-contexts", context_id), read=answer(Done))


class _CodeEvents:
    """Follows one execution. It cannot be resumed: a lost connection interrupts the code."""

    def __init__(self) -> None:
        self._decoder = EventDecoder()
        self.complete = False

    def feed(self, chunk: bytes) -> Iterable[CodeEvent]:
        for sent in self._decoder.feed(chunk):
            if (item := self._read(sent)) is not None:
                yield item

    def resume(self) -> None:
        return None

    def _read(self, sent: ServerSentEvent) -> CodeEvent | None:
        match sent.event:
            case "started":
                return event(CodeStarted, sent.data)
            case "output":
                return event(CodeOutput, sent.data)
            case "result":
                return event(CodeShown, sent.data)
            case "exception":
                return event(CodeRaised, sent.data)
            case "end":
                self.complete = True
                return event(CodeEnded, sent.data)
            case "error":
                raise from_event(sent.data)
        return None
