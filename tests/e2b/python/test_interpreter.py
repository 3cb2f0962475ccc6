"""Code that remembers: the code interpreter's SDK."""

import contextlib
import time

import pytest
from waiting import wait_until


@pytest.fixture(scope="module")
def sandbox(interpreter):
    made = interpreter.Sandbox.create(timeout=600, envs={"COLOUR": "green"})
    yield made
    made.kill()


def test_code_answers_with_its_last_value(sandbox):
    execution = sandbox.run_code("x = 40\nx + 2")
    assert execution.text == "42" and execution.error is None
    assert [result.is_main_result for result in execution.results] == [True]
    assert execution.execution_count >= 1


def test_code_remembers(sandbox):
    sandbox.run_code("kept = 'here'")
    assert sandbox.run_code("kept").text == "here"


def test_output_is_told_while_it_comes(sandbox):
    out, err, results = [], [], []
    execution = sandbox.run_code(
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\n1",
        on_stdout=lambda message: out.append(message.line),
        on_stderr=lambda message: err.append(message.line),
        on_result=results.append,
    )
    assert "".join(out) == "".join(execution.logs.stdout) == "out\n"
    assert "".join(err) == "".join(execution.logs.stderr) == "err\n"
    assert results[0].text == "1"


def test_output_comes_before_the_end(sandbox):
    heard = []
    sandbox.run_code(
        "import time\nprint('first', flush=True)\ntime.sleep(1)\nprint('second')",
        on_stdout=lambda message: heard.append((time.monotonic(), message.line)),
    )
    assert heard[-1][0] - heard[0][0] > 0.5


def test_an_error_tells_its_name_value_and_place(sandbox):
    told = []
    execution = sandbox.run_code("1 / 0", on_error=told.append)
    assert execution.error.name == "ZeroDivisionError" and execution.error.value == "division by zero"
    assert "Traceback" in execution.error.traceback and told[0].name == "ZeroDivisionError"


def test_a_mistake_in_writing_is_an_error(sandbox):
    assert sandbox.run_code("if").error.name == "SyntaxError"


def test_nothing_is_nothing(sandbox):
    execution = sandbox.run_code("x = 1")
    assert execution.results == [] and execution.text is None


def test_results_are_rich(sandbox):
    execution = sandbox.run_code(
        "from IPython.display import HTML, Markdown, SVG, JSON, display\n"
        "display(HTML('<b>h</b>'))\ndisplay(Markdown('# m'))\n"
        "display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))\nJSON({'a': 1})"
    )
    html, markdown, svg, document = execution.results
    assert html.html == "<b>h</b>" and markdown.markdown == "# m" and "<svg" in svg.svg
    assert document.json == {"a": 1} and document.is_main_result and not html.is_main_result
    assert "html" in list(html.formats())


def test_long_values_are_not_cut(sandbox):
    assert len(sandbox.run_code("list(range(5000))").text) > 20_000


def test_variables_of_the_sandbox_are_seen(sandbox):
    assert sandbox.run_code("import os\nos.environ['COLOUR']").text == "green"


def test_variables_of_one_run_are_not_anothers(sandbox):
    read = "import os\nos.environ.get('ONCE', 'no')"
    assert sandbox.run_code(read, envs={"ONCE": "yes"}).text == "yes"
    assert sandbox.run_code(read).text == "no"
    assert sandbox.run_code("import os\nos.environ['COLOUR']", envs={"COLOUR": "red"}).text == "red"
    assert sandbox.run_code("import os\nos.environ['COLOUR']").text == "green"


def test_code_starts_at_home_and_sees_files(sandbox):
    sandbox.files.write("/home/user/data.txt", "of the SDK")
    assert sandbox.run_code("open('data.txt').read()").text == "of the SDK"
    assert sandbox.run_code("import os\nos.getcwd()").text == "/home/user"


def test_code_takes_shell_and_await(sandbox):
    assert "".join(sandbox.run_code("!echo from the shell").logs.stdout).strip() == "from the shell"
    assert sandbox.run_code("import asyncio\nawait asyncio.sleep(0, 'awaited')").text == "awaited"


def test_contexts_do_not_share(sandbox):
    context = sandbox.create_code_context(cwd="/tmp", language="python")
    assert (context.language, context.cwd) == ("python", "/tmp")
    sandbox.run_code("mine = 1", context=context)
    assert sandbox.run_code("mine", context=context).text == "1"
    assert sandbox.run_code("mine").error.name == "NameError"
    assert sandbox.run_code("import os\nos.getcwd()", context=context).text == "/tmp"
    sandbox.remove_code_context(context)


def test_contexts_are_listed_in_order(sandbox):
    languages = [each.language for each in sandbox.list_code_contexts()]
    assert languages[:2] == ["python", "javascript"]
    context = sandbox.create_code_context()
    assert sandbox.list_code_contexts()[-1].id == context.id
    sandbox.remove_code_context(context.id)
    assert context.id not in [each.id for each in sandbox.list_code_contexts()]


def test_a_context_that_starts_anew_has_forgotten(sandbox):
    context = sandbox.create_code_context()
    sandbox.run_code("mine = 1", context=context)
    sandbox.restart_code_context(context)
    assert sandbox.run_code("mine", context=context).error.name == "NameError"
    sandbox.remove_code_context(context)


def test_a_context_that_is_not_there_is_not_found(sandbox, sdk):
    with pytest.raises(sdk.error("NotFoundException")):
        sandbox.remove_code_context("nosuchcontext")
    with pytest.raises(sdk.error("NotFoundException")):
        sandbox.restart_code_context("nosuchcontext")


def test_a_context_and_a_language_at_once_are_refused(sandbox):
    context = sandbox.create_code_context()
    with pytest.raises(Exception, match="not both"):
        sandbox.run_code("1", language="python", context=context)
    sandbox.remove_code_context(context)


def test_code_that_takes_too_long_is_interrupted(sandbox, sdk):
    with pytest.raises(sdk.error("TimeoutException")):
        sandbox.run_code("import time\ntime.sleep(300)", timeout=1)
    assert sandbox.run_code("'alive'", timeout=20).text == "alive"


def test_a_kernel_that_died_comes_back(sandbox):
    sandbox.run_code("import os\nos._exit(1)", timeout=20)
    wait_until(lambda: sandbox.run_code("'alive'").text == "alive")


def test_the_interpreter_comes_back_when_it_is_killed(sandbox):
    sandbox.run_code("kept = 1")
    for words in ("jupyter server", "uvicorn main:app"):
        sandbox.commands.run(f"kill -9 $(pgrep -f '[{words[0]}]{words[1:]}') || true", user="root")

    def answers():
        with contextlib.suppress(Exception):
            return sandbox.run_code("'alive'", timeout=10).text == "alive"

    wait_until(answers)


def test_code_runs_behind_a_traffic_token(interpreter):
    made = interpreter.Sandbox.create(timeout=60, network={"allow_public_traffic": False})
    try:
        assert made.run_code("6 * 7").text == "42"
        assert len(made.list_code_contexts()) >= 2
    finally:
        made.kill()


def test_shells_and_scripts_have_kernels_where_they_can(sandbox):
    assert "".join(sandbox.run_code("echo from bash", language="bash").logs.stdout) == "from bash\n"
    execution = sandbox.run_code("const x = 40; console.log('js'); x + 2", language="javascript")
    assert "".join(execution.logs.stdout) == "js\n" and execution.text == "42"


def test_charts_are_described(sandbox):
    if sandbox.run_code("import matplotlib").error:
        pytest.skip("there is no matplotlib in this template")
    execution = sandbox.run_code(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='line')\nplt.title('T')\nplt.show()"
    )
    result = next(each for each in execution.results if each.png)
    assert result.chart.type.value == "line" and result.chart.title == "T"


def test_code_in_a_killed_sandbox_says_so(interpreter, sdk):
    made = interpreter.Sandbox.create(timeout=60)
    made.kill()
    with pytest.raises(sdk.error("TimeoutException")):
        made.run_code("1")
