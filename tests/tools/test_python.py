"""Python that remembers, and packages for it."""

from __future__ import annotations

import base64
import io
import zipfile

import pytest

from tests.tools.workbench import Workbench

pytestmark = pytest.mark.slow


async def test_code_remembers_and_answers_like_a_notebook(work: Workbench) -> None:
    first = await work.does("run_python", code="x = 20\nprint('hello')\nimport sys; print('oops', file=sys.stderr)")
    assert (first["stdout"], first["stderr"], first["result"]) == ("hello\n", "oops\n", None)
    second = await work.call("run_python", code="x + 1")
    assert (second.text, second.failed) == ("21", False)
    failed = await work.call("run_python", code="x / 0")
    assert not failed.failed
    assert failed.data is not None
    assert failed.data["error"]["name"] == "ZeroDivisionError"
    assert "ZeroDivisionError" in failed.text
    await work.does("run_python", code="y = 1", restart=True)
    assert (await work.does("run_python", code="x"))["error"]["name"] == "NameError"


async def test_what_is_displayed_as_a_picture_is_a_picture(work: Workbench) -> None:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    code = f"from IPython.display import Image, display; import base64; display(Image(base64.b64decode('{pixel}')))"
    outcome = await work.call("run_python", code=code)
    [picture] = outcome.pictures
    assert (picture.media_type, picture.data) == ("image/png", base64.b64decode(pixel))
    assert "1 picture" in outcome.text


async def test_code_that_takes_too_long_is_interrupted(work: Workbench) -> None:
    await work.does("run_python", code="z = 0")
    for seconds in (1, 30):  # to come to its sleep; the first is enough where nothing is busy
        data = await work.does("run_python", code="z = 5\nimport time\ntime.sleep(600)", timeout=seconds)
        assert data["timed_out"]
        if (found := (await work.does("run_python", code="z"))["result"]) == "5":
            break
    assert found == "5"


async def test_too_much_output_of_code_is_kept_in_a_file(work: Workbench) -> None:
    data = await work.does("run_python", code="for i in range(20000): print(i)")
    assert len(data["stdout"]) < 25_000
    assert await work.shell(f"tail -1 {data['output_file']}") == "19999\n"


async def test_code_sees_the_variables_that_env_set_keeps(work: Workbench) -> None:
    await work.does("env_set", name="FOR_PYTHON", value="seen")
    assert (await work.does("run_python", code="import os; os.environ['FOR_PYTHON']"))["result"] == "seen"
    await work.does("env_set", name="FOR_PYTHON", value=None)


async def test_an_installed_package_can_be_imported_at_once(work: Workbench) -> None:
    await work.does("run_python", code="1")
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_thing.py", "answer = 42\n")
        archive.writestr("tiny_thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        archive.writestr(
            "tiny_thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_thing-1.0.dist-info/RECORD", "")
    path = work.at("tiny_thing-1.0-py3-none-any.whl")
    await work.shell(f"mkdir -p {work.folder}; echo {base64.b64encode(wheel.getvalue()).decode()} | base64 -d > {path}")
    if "No module named pip" in (await work.does("run_command", command="python3 -m pip --version"))["stderr"]:
        assert "ensurepip" in await work.fails("pip_install", packages=[path])
        pytest.skip("the Python of this machine has no pip")
    done = await work.does("pip_install", packages=[path])
    assert done["packages"] == ["tiny-thing-1.0"]
    assert (await work.does("run_python", code="import tiny_thing; tiny_thing.answer"))["result"] == "42"
    assert "option" in await work.fails("pip_install", packages=["--pre"])
    assert "none.whl" in await work.fails("pip_install", packages=[work.at("none.whl")])


async def test_a_traceback_has_no_colours(work: Workbench) -> None:
    outcome = await work.call("run_python", code="%colors Linux\n1 / 0")
    assert "ZeroDivisionError" in outcome.text and "\x1b" not in outcome.text
