"""R and Java through E2B's SDK, unchanged: with the add-on they have a kernel."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.addons.java import Java
from paddock.addons.r import R
from paddock.addons.recipe import Recipe
from tests.addons.languages import ADDONS, installed, is_installed
from tests.e2b.environments import PYTHON_NEWEST, prepare
from tests.gateway.bed import Bed, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
exhaustive = pytest.mark.exhaustive(reason="half a minute of apt-get for each add-on, and 350 MB")

PROGRAM = """
import json, sys
from e2b_code_interpreter import Sandbox
sandbox = Sandbox.connect(sys.argv[1])
for code, options in json.load(sys.stdin):
    ran = sandbox.run_code(code, **options)
    error = ran.error and [ran.error.name, ran.error.value, ran.error.traceback]
    formats = sorted(name for result in ran.results for name in result.formats())
    said = {"text": ran.text, "formats": formats, "stdout": "".join(ran.logs.stdout), "error": error}
    print(json.dumps(said), flush=True)
"""

Answers = list[dict[str, Any]]
Run = Callable[..., Answers]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    home = tmp_path_factory.mktemp("languages")
    for recipe in (R(), Java()):
        addons = installed(recipe)
    (home / "addons").symlink_to(addons)
    prepare(PYTHON_NEWEST)
    with running(home, "local") as bed:
        yield bed


@pytest.fixture
def run(bed: Bed, tmp_path: Path) -> Run:
    def run(language: str, *codes: str | tuple[str, dict[str, str]]) -> Answers:
        """In a new sandbox that sees nothing of a JDK that this machine may have."""
        nothing = tmp_path / "nothing"
        nothing.mkdir()
        mounts = [{"source": str(nothing), "target": "/usr/lib/jvm", "read_only": True}]
        box = bed.create(mounts=mounts if Path("/usr/lib/jvm").is_dir() else [])
        asked = [(each, {}) if isinstance(each, str) else (each[0], {"envs": each[1]}) for each in codes]
        ran = subprocess.run(
            [PYTHON_NEWEST.python, "-c", PROGRAM, box.key],
            input=json.dumps([(code, {"language": language, **options}) for code, options in asked]),
            env={
                "E2B_API_URL": f"{bed.url}/e2b",
                "E2B_SANDBOX_URL": bed.url,
                "E2B_API_KEY": bed.key,
                "NO_PROXY": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ran.returncode == 0, ran.stderr
        return [json.loads(line) for line in ran.stdout.splitlines()]

    return run


@pytest.mark.parametrize(
    ("recipe", "program", "code", "again", "text"),
    [(R(), "R", "x <- 1 + 1", "x * 21", "[1] 42"), (Java(), "jshell", "int x = 1 + 1;", "x * 21", "42")],
    ids=["r", "java"],
)
def test_a_kernel_remembers(tmp_path: Path, recipe: Recipe, program: str, code: str, again: str, text: str) -> None:
    """By what is here without a download: the add-on that the other tests have left, or this machine's own program."""
    if is_installed(recipe):
        (tmp_path / "addons").symlink_to(ADDONS)
    with running(tmp_path, "local") as bed:
        box = bed.create()
        if not is_installed(recipe) and not box.run(f"command -v {program} || true"):
            pytest.skip(f"there is no {program} on this machine, and `make test-all` has not installed the add-on")
        with bed.api() as api:
            asked = {"sandbox_id": box.sandbox_id, "language": recipe.name}
            for each in (code, again):
                ran = api.post("/sandboxes/run-code", json={**asked, "code": each}).raise_for_status().json()
    assert ran["text"] == text


@exhaustive
def test_r_remembers_shows_and_fails(run: Run) -> None:
    value, again, table, plot, printed, lent, given_back, failed, after = run(
        "r",
        "x <- 1+1; x",
        "x * 21",
        "data.frame(a = 1:2, b = c('one', 'two'))",
        "plot(1:10)",
        "cat('printed\\n'); message('told')",
        ("Sys.getenv('LENT')", {"LENT": 'a "value" é'}),
        "Sys.getenv('LENT', unset = NA)",
        "stop('bad')",
        "x",
    )
    assert value["text"] == "[1] 2" and again["text"] == "[1] 42"
    assert "html" in table["formats"] and "png" in plot["formats"]
    assert printed["stdout"] == "printed\n"
    assert lent["text"] == '[1] "a \\"value\\" é"' and given_back["text"] == "[1] NA"
    assert "bad" in failed["error"][1] and after["text"] == "[1] 2"


@exhaustive
def test_java_remembers_shows_and_fails(run: Run) -> None:
    value, again, method, printed, lent, given_back, failed, wrong, after = run(
        "java",
        "int x = 1 + 1; x",
        "x * 21",
        "int twice(int a) {\n    return 2 * a;\n}\ntwice(x)",
        'System.out.println("printed é")',
        ('System.getenv("LENT")', {"LENT": "a value é"}),
        'String.valueOf(System.getenv("LENT"))',
        'throw new IllegalStateException("bad")',
        'int y = "text";',
        "x",
    )
    assert (value["text"], again["text"], method["text"]) == ("2", "42", "4")
    assert printed["stdout"] == "printed é\n"
    assert (lent["text"], given_back["text"]) == ("a value é", "null")
    assert failed["error"][:2] == ["IllegalStateException", "bad"]
    assert wrong["error"][0] == "CompilationException" and "cannot be converted" in wrong["error"][1]
    assert after["text"] == "2"


@exhaustive
@pytest.mark.parametrize(
    ("language", "endless"), [("r", "repeat { }"), ("java", "while (true) { }")], ids=["r", "java"]
)
def test_code_that_takes_too_long_is_interrupted_and_what_it_defined_stays(
    bed: Bed, language: str, endless: str
) -> None:
    box = bed.create()
    asked = {"sandbox_id": box.sandbox_id, "language": language}
    with bed.api() as api:
        for code, timeout in (("x = 7" if language == "r" else "int x = 7;", 60), (endless, 1), ("x", 60)):
            ran = api.post("/sandboxes/run-code", json={**asked, "code": code, "timeout": timeout}).raise_for_status()
    assert "7" in ran.json()["text"]
