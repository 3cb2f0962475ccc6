"""JavaScript, TypeScript and bash: the same promises, in their own words."""

from __future__ import annotations

import pytest

from tests.interpreter.place import Sandbox, one, text_of


@pytest.fixture
async def node(sandbox: Sandbox) -> str:
    made = await sandbox.call("POST", "/contexts", {"language": "js"})
    if "no Node.js" in made.text:
        pytest.skip("this machine has no Node.js to show in a sandbox")
    assert made.json["language"] == "javascript"
    return str(made.json["id"])


@pytest.fixture
async def bash(sandbox: Sandbox) -> str:
    return await sandbox.new_context("bash")


async def result(sandbox: Sandbox, code: str, context: str) -> str:
    return str(one(await sandbox.execute(code, context_id=context), "result")["text"])


async def test_javascript_prints(sandbox: Sandbox, node: str) -> None:
    said = await sandbox.execute("console.log('out'); console.error('err')", context_id=node)
    assert [(output["type"], output["text"]) for output in said] == [("stdout", "out\n"), ("stderr", "err\n")]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("1 + 1", "2"),
        ("'Hello, World!'", "Hello, World!"),
        ("({ a: [1, 2] })", "{ a: [ 1, 2 ] }"),
        ("null", "null"),
        ("10n ** 20n", "100000000000000000000n"),
        ("-0", "-0"),
        ("const add = (x, y) => x + y;\nadd(1, 2);", "3"),
        ("async function main() { return 'done' }\n\nawait main()", "done"),
        ("class A {}; new A()", "A {}"),
        ("Symbol('s')", "Symbol(s)"),
    ],
)
async def test_the_last_expression_of_javascript_is_its_result(
    sandbox: Sandbox, node: str, code: str, text: str
) -> None:
    assert await result(sandbox, code, node) == text


async def test_javascript_without_a_value_has_no_result(sandbox: Sandbox, node: str) -> None:
    assert await sandbox.execute("undefined", context_id=node) == []


async def test_javascript_remembers_and_may_declare_again(sandbox: Sandbox, node: str) -> None:
    await sandbox.execute("const x = 1; let y = 2; function f() { return x + y }", context_id=node)
    assert await result(sandbox, "f()", node) == "3"
    assert await result(sandbox, "const x = 5; x", node) == "5"


async def test_javascript_imports_and_requires(sandbox: Sandbox, node: str) -> None:
    await sandbox.shell(
        "mkdir -p node_modules/odd && cd node_modules/odd && echo 'module.exports = (n) => n % 2 === 1' > index.js"
    )
    made = await sandbox.new_context("js", cwd="/workspace")
    assert await result(sandbox, "import odd from 'npm:odd'\nodd(3)", made) == "true"
    assert await result(sandbox, "import { basename as base, sep } from 'node:path'\nbase('/a/b') + sep", made) == "b/"
    assert await result(sandbox, "import * as all from 'os'\ntypeof all.cpus", made) == "function"
    assert await result(sandbox, "const { odd: missing, default: d } = await import('odd'); d(2)", made) == "false"
    assert await result(sandbox, "require('odd')(5)", made) == "true"
    assert await result(sandbox, "'import(\"x\")'", made) == 'import("x")'


async def test_an_error_of_javascript(sandbox: Sandbox, node: str) -> None:
    error = one(await sandbox.execute("throw new TypeError('bad')", context_id=node), "error")
    assert (error["name"], error["value"]) == ("TypeError", "bad")
    assert "node_language.js" not in error["traceback"]
    assert one(await sandbox.execute("let = ;", context_id=node), "error")["name"] == "SyntaxError"
    assert one(await sandbox.execute("throw 'text'", context_id=node), "error")["value"] == "'text'"
    assert (
        one(await sandbox.execute("await Promise.reject(new Error('late'))", context_id=node), "error")["value"]
        == "late"
    )


async def test_javascript_shows_more_than_text(sandbox: Sandbox, node: str) -> None:
    code = "({ [Symbol.for('Jupyter.display')]: () => ({ 'text/html': '<b>x</b>', 'application/x-own': 1 }) })"
    shown = one(await sandbox.execute(code, context_id=node), "result")
    assert shown["html"] == "<b>x</b>"
    assert shown["extra"] == {"application/x-own": 1}
    said = await sandbox.execute("await display('first'); 'second'", context_id=node)
    assert [(output["text"], output["is_main_result"]) for output in said] == [("first", False), ("second", True)]


async def test_javascript_runs_in_its_directory(sandbox: Sandbox, node: str) -> None:
    assert await result(sandbox, "process.cwd()", node) == "/home/user"
    assert await result(sandbox, "process.cwd()", await sandbox.new_context("js", cwd="/home")) == "/home"


async def test_a_child_process_of_javascript_is_heard(sandbox: Sandbox, node: str) -> None:
    code = "require('child_process').execSync('echo from a child', { stdio: 'inherit' }); undefined"
    assert text_of(await sandbox.execute(code, context_id=node)) == "from a child\n"


async def test_much_output_of_javascript_is_complete(sandbox: Sandbox, node: str) -> None:
    said = await sandbox.execute("for (let n = 0; n < 20000; n++) console.log(String(n))", context_id=node)
    assert text_of(said) == "".join(f"{n}\n" for n in range(20000))


async def test_typescript_runs_on_the_same_kernel(sandbox: Sandbox, node: str) -> None:
    context = await sandbox.new_context("ts")
    code = (
        "interface Point { x: number; y?: number }\n"
        "enum Colour { Red = 1, Green }\n"
        "function subtract(x: number, y: number): number {\n  return x - y;\n}\n"
        "const p: Point = { x: 1 } as Point;\n"
        "const names = new Map<string, Array<number>>();\n"
        "subtract(p.x, Colour.Green);"
    )
    assert await result(sandbox, code, context) == "-1"
    said = await sandbox.execute("const message: string = 'Hello!'; console.log(message);", context_id=context)
    assert text_of(said) == "Hello!\n"
    assert one(await sandbox.execute("const x: = 5", context_id=context), "error")["name"] == "SyntaxError"


async def test_bash_remembers_variables_functions_and_directory(sandbox: Sandbox, bash: str) -> None:
    await sandbox.execute('x=5; f() { echo "f$1"; }; cd /tmp', context_id=bash)
    assert text_of(await sandbox.execute("echo $x; f 1; pwd", context_id=bash)) == "5\nf1\n/tmp\n"


async def test_a_failing_command_of_bash_is_an_error(sandbox: Sandbox, bash: str) -> None:
    said = await sandbox.execute("echo before; ls /nowhere", context_id=bash)
    assert text_of(said) == "before\n"
    assert "/nowhere" in text_of(said, "stderr")
    assert one(said, "error")["value"] == "2"
    assert await sandbox.execute("false; true", context_id=bash) == []


async def test_bash_takes_several_lines_and_reads_no_input(sandbox: Sandbox, bash: str) -> None:
    code = 'for n in 1 2 3; do\n  echo "n=$n"\ndone\ncat\nread answer || echo nothing to read\n: é'
    assert text_of(await sandbox.execute(code, context_id=bash)) == "n=1\nn=2\nn=3\nnothing to read\n"


async def test_a_syntax_error_of_bash_is_an_error(sandbox: Sandbox, bash: str) -> None:
    said = await sandbox.execute("if true; then", context_id=bash)
    assert one(said, "error")["name"] == "ExitCode"
    assert text_of(await sandbox.execute("echo fine", context_id=bash)) == "fine\n"


async def test_languages_are_known_by_their_short_names(sandbox: Sandbox) -> None:
    assert text_of(await sandbox.execute("echo hi", language="Bash")) == "hi\n"
    languages = {context["language"] for context in (await sandbox.call("GET", "/contexts")).json}
    assert languages <= {"python", "javascript", "typescript", "bash"}
