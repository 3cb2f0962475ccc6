"""Responses of the proxy itself: refusals, with their reason and what can be done."""

from __future__ import annotations

from http import HTTPStatus

from paddock.http1.head import write_head

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def answer(status: HTTPStatus, mark: str, text: str) -> bytes:
    body = f"{text}\n".encode()
    headers = (
        (b"Content-Type", b"text/plain; charset=utf-8"),
        (b"Content-Length", str(len(body)).encode()),
        (b"X-Paddock-Egress", mark.encode()),
        (b"Connection", b"close"),
    )
    return write_head(f"HTTP/1.1 {status.value} {status.phrase}".encode(), headers) + body


def denied(host: str, port: int, why: str) -> bytes:
    return answer(
        HTTPStatus.FORBIDDEN,
        "denied",
        f"Paddock did not connect this sandbox to {host} port {port}: {why}.\n"
        "Whoever owns the sandbox can change its egress policy; that takes effect at once, without a restart.",
    )


def unreachable(host: str, port: int, why: str) -> bytes:
    return answer(HTTPStatus.BAD_GATEWAY, "unreachable", f"Paddock could not reach {host} port {port}: {why}")


def unresolved(host: str, port: int) -> bytes:
    text = f"Paddock could not reach {host} port {port}: there is no host of this name."
    return answer(HTTPStatus.BAD_GATEWAY, "unresolved", text)


def too_slow(host: str, port: int) -> bytes:
    text = f"Paddock could not reach {host} port {port}: it did not answer in time. Try again later."
    return answer(HTTPStatus.GATEWAY_TIMEOUT, "unreachable", text)


def malformed(why: str) -> bytes:
    return answer(HTTPStatus.BAD_REQUEST, "malformed", why)


def head_too_slow(seconds: float) -> bytes:
    text = f"The request head was not complete after {seconds:g} seconds."
    return answer(HTTPStatus.REQUEST_TIMEOUT, "malformed", text)


def too_many(limit: int) -> bytes:
    text = f"This sandbox has {limit} connections open, which is its limit. Close some and try again."
    return answer(HTTPStatus.SERVICE_UNAVAILABLE, "busy", text)
