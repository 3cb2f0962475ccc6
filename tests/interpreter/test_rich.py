"""Results that are more than text: images, tables, charts. matplotlib and pandas are shown inside by a mount."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paddock.server.context import ServerContext
from tests.e2b.environments import Environment, Language, prepare
from tests.interpreter.place import Output, Place, Sandbox, admin, create, one, text_of

PNG = b"\x89PNG\r\n"
SCIENCE = "/opt/science"
MATPLOTLIB_3_6 = Environment("matplotlib-3.6", Language.PYTHON, ("matplotlib==3.6.3", "numpy==1.26.4"))


@pytest.fixture
async def science(place: Place, server_context: ServerContext) -> AsyncIterator[Sandbox]:
    """A sandbox that has matplotlib and pandas, the same one for all these tests."""
    found = importlib.util.find_spec("matplotlib"), importlib.util.find_spec("pandas")
    if None in found or found[0] is None or found[0].origin is None:
        pytest.skip("matplotlib and pandas are not installed where the tests run")
    if "science" not in place.more:
        place.more["science"] = await _create_with(server_context, Path(found[0].origin).parents[1])
    yield Sandbox(server_context, admin(server_context), place.more["science"])


async def _create_with(server_context: ServerContext, packages: Path) -> str:
    mount = {"source": str(packages), "target": SCIENCE, "read_only": True}
    made = await create(server_context, mounts=[mount], env={"PYTHONPATH": SCIENCE}, resources={"memory_mb": 1024})
    return made.sandbox_id


async def chart(sandbox: Sandbox, code: str) -> Any:
    said = await sandbox.execute(f"import matplotlib.pyplot as plt\nimport numpy as np\n{code}\nplt.show()")
    shown = one(said, "result")
    assert base64.b64decode(shown["png"]).startswith(PNG)
    assert shown["is_main_result"] is False
    return shown.get("chart")


async def test_forms_of_results(sandbox: Sandbox) -> None:
    code = (
        "from IPython.display import display, HTML, Markdown, SVG, Latex, JSON, Javascript\n"
        "display(HTML('<b>h</b>'), Markdown('*m*'), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'), Latex('$x$'))\n"
        "display(JSON({'a': 1}), Javascript('alert(1)'))\n"
        "display({'application/x-own': 'o', 'text/plain': 'plain'}, raw=True)\n"
        "'main'"
    )
    said = await sandbox.execute(code)
    assert [result["is_main_result"] for result in said] == [False] * 7 + [True]
    html, markdown, svg, latex, as_json, javascript, own, main = said
    assert html["html"] == "<b>h</b>"
    assert markdown["markdown"] == "*m*"
    assert svg["svg"].startswith("<svg")
    assert latex["latex"] == "$x$"
    assert as_json["json"] == {"a": 1}
    assert javascript["javascript"] == "alert(1)"
    assert (own["extra"], own["text"]) == ({"application/x-own": "o"}, "plain")
    assert main["text"] == "main"


async def test_an_object_may_say_how_it_looks(sandbox: Sandbox) -> None:
    code = "class Shown:\n    def _repr_html_(self): return '<i>own</i>'\n    def __repr__(self): return 'own'\nShown()"
    result = one(await sandbox.execute(code), "result")
    assert (result["html"], result["text"]) == ("<i>own</i>", "own")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("{'a': [1, 2.5, None, True]}", {"a": [1, 2.5, None, True]}),
        ("[float('nan'), 1]", [None, 1]),
        ("{1: {2: 3}}", {"1": {"2": 3}}),
    ],
)
async def test_lists_and_dictionaries_are_json_too(sandbox: Sandbox, code: str, expected: Any) -> None:
    assert one(await sandbox.execute(code), "result")["json"] == expected


async def test_what_is_no_json_is_text_alone(sandbox: Sandbox) -> None:
    assert "json" not in one(await sandbox.execute("[object()]"), "result")


async def test_numbers_of_numpy_are_json(science: Sandbox) -> None:
    result = one(await science.execute("import numpy as np\n[np.int64(1), np.float32(0.5), np.arange(3)]"), "result")
    assert result["json"] == [1, 0.5, [0, 1, 2]]


async def test_a_data_frame_is_columns(science: Sandbox) -> None:
    code = (
        "import pandas as pd\n"
        "pd.DataFrame({'n': [1, 2], 'x': [0.5, float('nan')], 's': ['a', 'b'],\n"
        "              't': pd.to_datetime(['2024-01-02', None])})"
    )
    result = one(await science.execute(code), "result")
    assert result["data"] == {"n": [1, 2], "x": [0.5, None], "s": ["a", "b"], "t": ["2024-01-02T00:00:00", None]}
    assert "<table" in result["html"]


async def test_a_saved_and_a_shown_image_are_results(science: Sandbox) -> None:
    code = "from PIL import Image\nimage = Image.new('RGB', (4, 4), 'red')\n{}"
    for show in ("image.save('/tmp/red.png')", "image.show()", "image"):
        said = await science.execute(code.format(show))
        assert base64.b64decode(one(said, "result")["png"]).startswith(PNG), show
    assert await science.shell("head -c 4 /tmp/red.png | tail -c 3") == "PNG"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="matplotlib 3.6 has no wheels for this Python")
@pytest.mark.exhaustive
async def test_a_plot_of_the_matplotlib_that_debian_12_has(server_context: ServerContext) -> None:
    """The backend that the kit brings is younger than it."""
    await asyncio.to_thread(prepare, MATPLOTLIB_3_6)
    packages = MATPLOTLIB_3_6.folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    sandbox = Sandbox(server_context, admin(server_context), await _create_with(server_context, packages))
    assert (await sandbox.run("import matplotlib; matplotlib.__version__")).text == "3.6.3"
    assert (await chart(sandbox, "plt.plot([1, 2], [3, 4])"))["type"] == "line"
    await server_context.controller.delete(sandbox.who, sandbox.sandbox_id)


async def test_programs_that_the_code_starts_have_their_own_backend(science: Sandbox) -> None:
    said = await science.execute("import os\nimport matplotlib.pyplot\nprint(os.environ.get('MPLBACKEND'))")
    assert text_of(said) == "None\n"


async def test_a_line_chart(science: Sandbox) -> None:
    found = await chart(
        science,
        "x = np.linspace(0, 6, 100)\nplt.plot(x, np.sin(x), label='sin(x)')\nplt.plot(x, np.cos(x), label='cos(x)')\n"
        "plt.xlabel('Time (s)')\nplt.ylabel('Amplitude (Hz)')\nplt.title('Waves')\nplt.grid(True)",
    )
    assert (found["type"], found["title"]) == ("line", "Waves")
    assert (found["x_label"], found["x_unit"], found["y_label"], found["y_unit"]) == (
        "Time (s)",
        "s",
        "Amplitude (Hz)",
        "Hz",
    )
    assert [line["label"] for line in found["elements"]] == ["sin(x)", "cos(x)"]
    assert len(found["elements"][0]["points"]) == 100
    assert all(isinstance(value, float) for point in found["elements"][0]["points"] for value in point)
    assert all(isinstance(tick, float) for tick in [*found["x_ticks"], *found["y_ticks"]])
    assert all(isinstance(label, str) for label in [*found["x_tick_labels"], *found["y_tick_labels"]])
    assert (found["x_scale"], found["y_scale"]) == ("linear", "linear")


async def test_a_scatter_chart(science: Sandbox) -> None:
    found = await chart(
        science, "plt.scatter([1, 2], [3, 4], label='A')\nplt.scatter([5], [6], label='B')\nplt.xlabel('x')"
    )
    assert (found["type"], found["title"], found["x_label"], found["y_label"]) == ("scatter", None, "x", None)
    assert found["elements"] == [
        {"label": "A", "points": [[1.0, 3.0], [2.0, 4.0]]},
        {"label": "B", "points": [[5.0, 6.0]]},
    ]


async def test_bar_charts(science: Sandbox) -> None:
    found = await chart(science, "plt.bar(['A', 'B'], [100, 200], label='Sold')\nplt.xlabel('Who')\nplt.ylabel('n')")
    assert found["type"] == "bar"
    assert found["elements"] == [
        {"label": "A", "group": "Sold", "value": 100.0},
        {"label": "B", "group": "Sold", "value": 200.0},
    ]
    lying = await chart(science, "plt.barh(['A', 'B'], [1, 2])")
    assert [(bar["label"], bar["value"]) for bar in lying["elements"]] == [("A", 1.0), ("B", 2.0)]
    beside = await chart(
        science, "plt.bar([0, 1], [1, 2], 0.4, label='x')\nplt.bar([0.4, 1.4], [3, 4], 0.4, label='y')"
    )
    assert [bar["group"] for bar in beside["elements"]] == ["x", "x", "y", "y"]


async def test_a_pie_chart(science: Sandbox) -> None:
    found = await chart(science, "plt.pie([90, 10], labels=['No', 'Yes'], startangle=90)\nplt.title('Early?')")
    assert found == {
        "type": "pie",
        "title": "Early?",
        "elements": [{"label": "No", "angle": 324, "radius": 1}, {"label": "Yes", "angle": 36, "radius": 1}],
    }


async def test_a_box_chart(science: Sandbox) -> None:
    found = await chart(
        science,
        "data = {'A': [1, 2, 3, 4, 100], 'B': [5, 6, 7]}\n"
        "for patch in (False, True):\n"
        "    plt.boxplot(list(data.values()), tick_labels=list(data), patch_artist=patch)\n"
        "plt.ylabel('Score')",
    )
    assert (found["type"], found["y_label"], len(found["elements"])) == ("box_and_whisker", "Score", 2)
    first = found["elements"][0]
    assert first == {
        "label": "A",
        "min": 1.0,
        "first_quartile": 2.0,
        "median": 3.0,
        "third_quartile": 4.0,
        "max": 4.0,
        "outliers": [100.0],
    }


async def test_several_plots_are_a_superchart(science: Sandbox) -> None:
    found = await chart(
        science,
        "fig, axs = plt.subplots(1, 2)\nfig.suptitle('Both')\naxs[0].plot([1, 2], [1, 2])\naxs[0].set_title('Line')\n"
        "axs[1].scatter([1], [1])\naxs[1].set_title('Points')",
    )
    assert (found["type"], found["title"]) == ("superchart", "Both")
    assert [(each["type"], each["title"]) for each in found["elements"]] == [("line", "Line"), ("scatter", "Points")]


@pytest.mark.parametrize(
    ("code", "scales"),
    [
        ("plt.plot([1, 10], [1, 100])\nplt.yscale('log')", ("linear", "log")),
        ("plt.plot([1, 2], ['A', 'B'])", ("linear", "categorical")),
        ("import datetime as d\nplt.plot([d.date(2023, 9, 1), d.date(2023, 9, 2)], [1, 2])", ("datetime", "linear")),
    ],
)
async def test_scales(science: Sandbox, code: str, scales: tuple[str, str]) -> None:
    found = await chart(science, code)
    assert (found["x_scale"], found["y_scale"]) == scales
    point = found["elements"][0]["points"][0]
    kinds = [str if scale in ("datetime", "categorical") else float for scale in scales]
    assert [type(value) for value in point] == kinds


async def test_what_is_not_known_has_its_title_and_an_empty_figure_is_no_chart(science: Sandbox) -> None:
    circles = "fig, ax = plt.subplots()\nax.add_artist(plt.Circle((0, 0), 1))\nplt.title('Circle')"
    assert await chart(science, circles) == {"type": "unknown", "title": "Circle", "elements": []}
    assert await chart(science, "plt.subplots()") is None


async def test_a_figure_shows_itself_at_the_end_of_the_code(science: Sandbox) -> None:
    said: list[Output] = await science.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    assert [output["type"] for output in said] == ["result"]
    assert said[0]["chart"]["type"] == "line"
