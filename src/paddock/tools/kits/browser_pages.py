"""The browser: whole pages, tabs, console, network log."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Field

from paddock.browser import PORT
from paddock.tools.context import ToolContext
from paddock.tools.kits.browsing import (
    Clear,
    Evaluated,
    Limit,
    LiveView,
    Message,
    Messages,
    Page,
    Printed,
    Ref,
    Request,
    Requests,
    Selector,
    Shot,
    Tab,
    Tabs,
    Text,
    call,
    cut,
    page_of,
    pictures,
    plain,
    said,
)
from paddock.tools.tool import ToolKit, ToolReply

kit = ToolKit("browser")


@kit.tool("browser_screenshot", "Take a screenshot", read_only=True)
async def screenshot(
    ctx: ToolContext,
    full_page: Annotated[bool, Field(description="Not only the visible part.")] = False,
    ref: Ref = None,
    selector: Selector = None,
    text: Text = None,
) -> ToolReply[Page]:
    """A picture of what the browser shows, of the whole page, or of one element."""
    target = {"ref": ref, "selector": selector, "text": text}
    return plain(await call(ctx, "screenshot", full_page=full_page, **target))


@kit.tool("browser_evaluate", "Run JavaScript in the page", open_world=True)
async def evaluate(
    ctx: ToolContext,
    expression: Annotated[
        str,
        Field(
            min_length=1, description="An expression, or a function without parameters.", examples=["document.title"]
        ),
    ],
    screenshot: Shot = False,
) -> ToolReply[Evaluated]:
    """Run JavaScript in the page, and get its value as JSON. Promises are awaited."""
    answer = await call(ctx, "evaluate", expression=expression, screenshot=screenshot)
    value = answer.fields.get("value")
    shown = cut(ctx, json.dumps(value, ensure_ascii=False, indent=2), "(cut; ask for less)")
    data = Evaluated(**page_of(answer), value=value if len(shown) <= ctx.inline else None)
    return ToolReply(f"{shown}\n{said(answer)}", data, pictures(answer))


@kit.tool("browser_tabs", "Tabs of the browser")
async def tabs(
    ctx: ToolContext,
    action: Annotated[Literal["list", "new", "switch", "close"], Field(description="What to do.")] = "list",
    index: Annotated[int | None, Field(ge=0, description="Which tab; to close, default the current one.")] = None,
    url: Annotated[str | None, Field(description="What a new tab opens.")] = None,
    screenshot: Shot = False,
) -> ToolReply[Tabs]:
    """List the tabs, open a new one, switch to another, or close one."""
    answer = await call(ctx, "tabs", action=action, index=index, url=url, screenshot=screenshot)
    found = [Tab.model_validate(tab) for tab in answer.fields.get("tabs") or []]
    lines = [f"{'*' if tab.current else ' '} {tab.index}: {tab.title or '(no title)'} ({tab.url})" for tab in found]
    return ToolReply("\n".join([*lines, *answer.notes]), Tabs(**page_of(answer), tabs=found), pictures(answer))


@kit.tool("browser_back", "Go back", open_world=True)
async def back(ctx: ToolContext, screenshot: Shot = False) -> ToolReply[Page]:
    """Go back to the page that was open before in this tab."""
    return plain(await call(ctx, "back", screenshot=screenshot))


@kit.tool("browser_forward", "Go forward", open_world=True)
async def forward(ctx: ToolContext, screenshot: Shot = False) -> ToolReply[Page]:
    """Go forward again to the page from which browser_back came."""
    return plain(await call(ctx, "forward", screenshot=screenshot))


@kit.tool("browser_console", "Read the console", read_only=True)
async def console(
    ctx: ToolContext,
    errors_only: Annotated[bool, Field(description="Errors, exceptions and warnings.")] = False,
    limit: Limit = 100,
    clear: Clear = False,
) -> ToolReply[Messages]:
    """What the current tab's page wrote to its console, and the exceptions that nobody caught."""
    answer = await call(ctx, "console", errors_only=errors_only, limit=limit, clear=clear)
    found = [Message.model_validate(one) for one in answer.fields.get("entries") or []]
    lines = [f"[{one.type}] {one.text}{f' ({one.at})' if one.at else ''}" for one in found] or ["The console is empty."]
    data = Messages(**page_of(answer), entries=found, total=int(answer.fields.get("total") or 0))
    return ToolReply(cut(ctx, "\n".join(lines), "(cut; ask for fewer)") + f"\n{said(answer)}", data)


@kit.tool("browser_network", "Read the network log", read_only=True)
async def network(
    ctx: ToolContext,
    errors_only: Annotated[bool, Field(description="Failed, or answered with 400 and above.")] = False,
    limit: Limit = 100,
    clear: Clear = False,
) -> ToolReply[Requests]:
    """The requests that the current tab's pages made, and how they were answered."""
    answer = await call(ctx, "network", errors_only=errors_only, limit=limit, clear=clear)
    found = [Request.model_validate(one) for one in answer.fields.get("entries") or []]
    lines = [f"{one.status or one.failed or '?'} {one.method} {one.url} ({one.type})" for one in found]
    data = Requests(**page_of(answer), entries=found, total=int(answer.fields.get("total") or 0))
    text = "\n".join(lines or ["There were no requests."])
    return ToolReply(cut(ctx, text, "(cut; ask for fewer)") + f"\n{said(answer)}", data)


@kit.tool("browser_pdf", "Print the page", idempotent=True)
async def pdf(
    ctx: ToolContext,
    path: Annotated[str, Field(description="The file to write.", examples=["/workspace/page.pdf"])] = "page.pdf",
    format: Annotated[Literal["A3", "A4", "A5", "Letter", "Legal"], Field(description="Paper size.")] = "A4",
    landscape: Annotated[bool, Field(description="Landscape orientation.")] = False,
) -> ToolReply[Printed]:
    """Print the page to a PDF file in the sandbox."""
    answer = await call(ctx, "pdf", path=ctx.path(path), format=format, landscape=landscape)
    size = int(answer.fields.get("size") or 0)
    where = answer.text("path")
    return ToolReply(
        said(answer, f"Printed to {where} ({size} bytes)."), Printed(**page_of(answer), path=where, size=size)
    )


@kit.tool("browser_live_view", "Let a person watch", read_only=True)
async def live_view(ctx: ToolContext) -> ToolReply[LiveView]:
    """An address where a person can watch the browser live and use it, for logins for example."""
    url = ctx.port_url(PORT)
    return ToolReply(f"The browser can be watched, and taken over, at {url}", LiveView(url=url))


@kit.tool("browser_close", "Close the browser", destructive=True)
async def close(ctx: ToolContext) -> ToolReply[Page]:
    """End the browser with all its tabs. Cookies stay; the next call starts it anew."""
    answer = await call(ctx, "close")
    return ToolReply("The browser is closed.", Page(**page_of(answer)))
