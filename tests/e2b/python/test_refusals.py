"""What Paddock does not have yet answers in E2B's own form: an error of the SDK, never a crash of it."""

import dataclasses
from uuid import uuid4

import pytest


def refused(sdk):
    names = ("SandboxException", "BuildException", "VolumeException", "SecretException", "TemplateException")
    return tuple(sdk.error(name) for name in names if hasattr(sdk._package, name))


def test_snapshots(sandbox, sdk):
    with pytest.raises(refused(sdk)):
        sandbox.create_snapshot()
    assert sandbox.list_snapshots().next_items() == []
    assert sdk.Sandbox.delete_snapshot("nosuchsnapshot:default") is False


def test_forks(sandbox, sdk):
    with pytest.raises(refused(sdk)):
        sandbox.fork()


def test_a_refused_call_leaves_the_sandbox_as_it_was(sandbox, sdk):
    with pytest.raises(refused(sdk)):
        sandbox.fork()
    assert sandbox.is_running()


def test_templates(sdk):
    template = sdk._package.Template().from_python_image("3.12").run_cmd("true")
    with pytest.raises(refused(sdk)):
        sdk.Template.build(template, **alias())


def test_templates_in_the_background(sdk):
    template = sdk._package.Template().from_python_image("3.12")
    with pytest.raises(refused(sdk)):
        sdk.Template.build_in_background(template, **alias())


def test_builds_have_no_status(sdk):
    info = sdk.BuildInfo(**build_info(sdk))
    with pytest.raises(refused(sdk)):
        sdk.Template.get_build_status(info)


def test_tags(sdk):
    with pytest.raises(refused(sdk)):
        sdk.Template.assign_tags("mine:one", "two")
    with pytest.raises(refused(sdk)):
        sdk.Template.remove_tags("mine", "two")
    with pytest.raises(refused(sdk)):
        sdk.Template.get_tags("mine")


def test_templates_exist_or_not(sdk):
    assert sdk.Template.exists("base") is True
    assert sdk.Template.exists(f"no-{uuid4()}") is False
    assert sdk.Template.alias_exists("base") is True


def test_volumes(sdk):
    with pytest.raises(refused(sdk)):
        sdk.Volume.create("mine")
    for call in (sdk.Volume.connect, sdk.Volume.get_info):
        with pytest.raises(refused(sdk)):
            call("nosuchvolume")
    assert sdk.Volume.list() == []
    assert sdk.Volume.destroy("nosuchvolume") is False


def test_secrets(sdk):
    with pytest.raises(refused(sdk)):
        sdk.Secret.create("mine", "value")
    with pytest.raises(refused(sdk)):
        sdk.Secret.update("mine", "value")
    with pytest.raises(refused(sdk)):
        sdk.Secret.get_info("mine")
    assert sdk.Secret.list().next_items() == []
    assert sdk.Secret.exists("mine") is False
    assert sdk.Secret.destroy("mine") is False


def alias():
    return {"alias": f"t-{uuid4().hex[:8]}", "skip_cache": True}


def build_info(sdk):
    wanted = {field.name for field in dataclasses.fields(sdk.BuildInfo)}
    known = {"alias": "mine", "name": "mine", "tags": [], "template_id": "a" * 20, "build_id": str(uuid4())}
    return {name: value for name, value in known.items() if name in wanted}
