"""The browser: Chromium in the sandbox, which keeps running between calls and can be watched by a person."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from paddock.tools.context import ToolContext
from paddock.tools.kits.browsing import (
    Opened,
    Page,
    Ref,
    Scrolled,
    Selected,
    Selector,
    Shot,
    Text,
    Tree,
    X,
    Y,
    call,
    check_spot,
    cut,
    page_of,
    pictures,
    plain,
    said,
)
from paddock.tools.tool import ToolKit, ToolReply

kit = ToolKit("browser")


@kit.tool("browser_navigate", "Open a page", langchain="browser_open", open_world=True)
async def navigate(
    ctx: ToolContext,
    url: Annotated[str, Field(min_length=1, description="Servers in the sandbox: http://localhost:PORT.")],
    wait_until: Annotated[
        Literal["load", "domcontentloaded", "networkidle", "commit"], Field(description="What counts as loaded.")
    ] = "load",
    screenshot: Shot = True,
) -> ToolReply[Opened]:
    """Open a page in the sandbox's browser, and see it: the answer has a screenshot.

    The browser stays, with its tabs, cookies and logins. To act on the page: browser_snapshot (elements with refs),
    browser_click, browser_type.
    """
    answer = await call(ctx, "navigate", url=url, wait_until=wait_until, screenshot=screenshot)
    status = answer.fields.get("status")
    opened = Opened(**page_of(answer), status=status if isinstance(status, int) else None)
    return ToolReply(said(answer, f"Opened (HTTP {status})." if status else "Opened."), opened, pictures(answer))


@kit.tool("browser_snapshot", "See what is on the page", read_only=True)
async def snapshot(ctx: ToolContext, selector: Selector = None, screenshot: Shot = False) -> ToolReply[Tree]:
    """The page as a tree of what can be read and used, each element with a ref for browser_click and others.

    Better than a screenshot for finding elements. Refs are good until the page changes.
    """
    answer = await call(ctx, "snapshot", selector=selector, screenshot=screenshot)
    tree = cut(ctx, answer.text("snapshot"), "(cut; give a selector to see a part of the page)")
    return ToolReply(said(answer) + f"\n{tree}", Tree(**page_of(answer), snapshot=tree), pictures(answer))


@kit.tool("browser_click", "Click", open_world=True)
async def click(
    ctx: ToolContext,
    ref: Ref = None,
    selector: Selector = None,
    text: Text = None,
    x: X = None,
    y: Y = None,
    button: Annotated[Literal["left", "right", "middle"], Field(description="Mouse button.")] = "left",
    double: Annotated[bool, Field(description="Double click.")] = False,
    screenshot: Shot = False,
) -> ToolReply[Page]:
    """Click an element, named by ref, selector or text, or a point of the screenshot."""
    check_spot(x, y, ref, selector, text)
    target = {"ref": ref, "selector": selector, "text": text, "x": x, "y": y}
    answer = await call(ctx, "click", **target, button=button, double=double, screenshot=screenshot)
    return plain(answer, "Clicked.")


@kit.tool("browser_type", "Type text", open_world=True)
async def type_(
    ctx: ToolContext,
    text: Annotated[str, Field(max_length=100_000, description="What to type.")],
    ref: Ref = None,
    selector: Selector = None,
    label: Annotated[str | None, Field(description="The label of the field.")] = None,
    slowly: Annotated[bool, Field(description="Key by key, after the existing text.")] = False,
    submit: Annotated[bool, Field(description="Press Enter afterwards.")] = False,
    screenshot: Shot = False,
) -> ToolReply[Page]:
    """Fill a field, whose old text is replaced; without a field, type where the focus is."""
    target = {"ref": ref, "selector": selector, "label": label}
    answer = await call(ctx, "type", text=text, **target, slowly=slowly, submit=submit, screenshot=screenshot)
    return plain(answer, f"Typed {len(text)} characters.")


@kit.tool("browser_press", "Press a key", open_world=True)
async def press(
    ctx: ToolContext,
    key: Annotated[str, Field(min_length=1, description="Its name.", examples=["Enter", "Control+A", "PageDown"])],
    screenshot: Shot = False,
) -> ToolReply[Page]:
    """Press a key, or several at once, where the focus is."""
    return plain(await call(ctx, "press", key=key, screenshot=screenshot), f"Pressed {key}.")


@kit.tool("browser_scroll", "Scroll", read_only=True)
async def scroll(
    ctx: ToolContext,
    direction: Annotated[Literal["down", "up", "left", "right"], Field(description="Where to.")] = "down",
    amount: Annotated[int, Field(ge=1, le=100_000, description="Pixels.")] = 600,
    ref: Ref = None,
    selector: Selector = None,
    text: Text = None,
    x: X = None,
    y: Y = None,
    screenshot: Shot = False,
) -> ToolReply[Scrolled]:
    """Scroll the page; or until an element is in view; or what is under a point, such as a list."""
    target = {"ref": ref, "selector": selector, "text": text, "x": x, "y": y}
    answer = await call(ctx, "scroll", direction=direction, amount=amount, **target, screenshot=screenshot)
    now = answer.fields.get("scroll") or {}
    data = Scrolled(**page_of(answer), x=now.get("x", 0), y=now.get("y", 0), height=now.get("height", 0))
    return ToolReply(said(answer, f"At {data.y} of {data.height} pixels."), data, pictures(answer))


@kit.tool("browser_select", "Choose from a list", open_world=True)
async def select(
    ctx: ToolContext,
    values: Annotated[list[str], Field(min_length=1, description="Values or labels of the options.")],
    ref: Ref = None,
    selector: Selector = None,
    text: Text = None,
    screenshot: Shot = False,
) -> ToolReply[Selected]:
    """Choose options of a drop-down list."""
    check_spot(None, None, ref, selector, text)
    target = {"ref": ref, "selector": selector, "text": text}
    answer = await call(ctx, "select", values=values, **target, screenshot=screenshot)
    data = Selected(**page_of(answer), selected=[str(one) for one in answer.fields.get("selected") or []])
    return ToolReply(said(answer, f"Chose {', '.join(values)}."), data, pictures(answer))


@kit.tool("browser_hover", "Point at something", read_only=True)
async def hover(
    ctx: ToolContext,
    ref: Ref = None,
    selector: Selector = None,
    text: Text = None,
    x: X = None,
    y: Y = None,
    screenshot: Shot = False,
) -> ToolReply[Page]:
    """Move the mouse over an element or a point, for menus and hints that open there."""
    check_spot(x, y, ref, selector, text)
    target = {"ref": ref, "selector": selector, "text": text, "x": x, "y": y}
    return plain(await call(ctx, "hover", **target, screenshot=screenshot), "The mouse is there.")


class Spot(BaseModel):
    # No docstring: it would be sent to models, which know these names from browser_click.
    ref: Ref = None
    selector: Selector = None
    text: Text = None
    x: X = None
    y: Y = None


@kit.tool("browser_drag", "Drag and drop", open_world=True)
async def drag(
    ctx: ToolContext,
    source: Annotated[Spot, Field(description="What to drag.")],
    target: Annotated[Spot, Field(description="Where to drop it.")],
    screenshot: Shot = False,
) -> ToolReply[Page]:
    """Drag with the mouse from one element or point to another."""
    for spot in (source, target):
        check_spot(spot.x, spot.y, spot.ref, spot.selector, spot.text)
    places = {"from": source.model_dump(exclude_none=True), "to": target.model_dump(exclude_none=True)}
    return plain(await call(ctx, "drag", **places, screenshot=screenshot), "Dragged.")


@kit.tool("browser_wait", "Wait for the page", read_only=True)
async def wait(
    ctx: ToolContext,
    text: Annotated[str | None, Field(description="Until this text appears.")] = None,
    selector: Annotated[str | None, Field(description="Until such an element appears.")] = None,
    gone: Annotated[bool, Field(description="Until it disappears.")] = False,
    seconds: Annotated[float, Field(gt=0, le=60, description="Maximum seconds; alone, the exact time.")] = 10,
    screenshot: Shot = False,
) -> ToolReply[Page]:
    """Wait until something appears on the page, or is gone."""
    args = {"text": text, "selector": selector, "gone": gone, "seconds": seconds}
    return plain(await call(ctx, "wait", **args, screenshot=screenshot), "Waited.")
