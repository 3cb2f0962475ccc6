"""Shared by the browser's tools: arguments that select elements, answers, calls."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from paddock.browser import client
from paddock.tools.context import ToolContext
from paddock.tools.tool import Picture, ToolFailed, ToolReply

Ref = Annotated[str | None, Field(description="Its ref in the latest browser_snapshot.", examples=["e12"])]
Selector = Annotated[str | None, Field(description="CSS selector.", examples=["#email"])]
Text = Annotated[str | None, Field(description="Its text, label or name.")]
X = Annotated[float | None, Field(ge=0, description="A point of the screenshot instead; with y.")]
Y = Annotated[float | None, Field(ge=0, description="From the top.")]
Shot = Annotated[bool, Field(description="Answer with a screenshot.")]
Limit = Annotated[int, Field(ge=1, le=300, description="Maximum number.")]
Clear = Annotated[bool, Field(description="Clear them afterwards.")]


class Page(BaseModel):
    url: str
    title: str
    notes: list[str] = Field(default_factory=list, description="Other events: dialogs, downloads, new tabs.")


class Opened(Page):
    status: int | None = Field(None, description="Of the HTTP answer.")


class Scrolled(Page):
    x: int
    y: int
    height: int = Field(description="Of the whole page.")


class Selected(Page):
    selected: list[str]


class Evaluated(Page):
    value: Any = None


class Tree(Page):
    snapshot: str


class Tab(BaseModel):
    index: int
    url: str
    title: str
    current: bool


class Tabs(Page):
    tabs: list[Tab]


class Message(BaseModel):
    type: str
    text: str
    at: str


class Messages(Page):
    entries: list[Message]
    total: int


class Request(BaseModel):
    method: str
    url: str
    type: str
    status: int | None = None
    failed: str | None = None


class Requests(Page):
    entries: list[Request]
    total: int


class Printed(Page):
    path: str
    size: int


class LiveView(BaseModel):
    url: str


async def call(ctx: ToolContext, action: str, /, **args: Any) -> client.BrowserReply:
    try:
        return await client.call(ctx.reach, ctx.workers, action, args)
    except client.BrowserRefused as problem:
        raise ToolFailed(problem.message) from None


def check_spot(x: float | None, y: float | None, *named: str | None) -> None:
    if (x is None) != (y is None):
        raise ToolFailed("Give both x and y, or name the element.")
    if x is None and not any(named):
        raise ToolFailed("Say which element: by ref (from browser_snapshot), selector, text, or x and y.")


def page_of(answer: client.BrowserReply) -> dict[str, Any]:
    return {"url": answer.text("url"), "title": answer.text("title"), "notes": list(answer.notes)}


def said(answer: client.BrowserReply, *lines: str) -> str:
    return "\n".join([*lines, f"Page: {answer.text('title') or '(no title)'} ({answer.text('url')})", *answer.notes])


def pictures(answer: client.BrowserReply) -> tuple[Picture, ...]:
    return (Picture(answer.picture),) if answer.picture else ()


def plain(answer: client.BrowserReply, *lines: str) -> ToolReply[Page]:
    return ToolReply(said(answer, *lines), Page(**page_of(answer)), pictures(answer))


def cut(ctx: ToolContext, text: str, rest: str) -> str:
    return text if len(text) <= ctx.inline else f"{text[: ctx.inline]}\n… {rest}"
