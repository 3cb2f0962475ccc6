"""Bytes in and out: text, streams, many files at once, metadata, and links for those without the SDK."""

import io
import json
import time
import urllib.error
import urllib.request

import pytest

BIG = bytes(range(256)) * 4096 * 8


def test_text_comes_back(sandbox, folder):
    info = sandbox.files.write(f"{folder}/file", "text ü")
    assert (info.name, info.path, getattr(info.type, "value", info.type)) == ("file", f"{folder}/file", "file")
    assert sandbox.files.read(f"{folder}/file") == "text ü"


def test_bytes_come_back(sandbox, folder):
    sandbox.files.write(f"{folder}/file", BIG)
    assert sandbox.files.read(f"{folder}/file", format="bytes") == BIG


def test_a_stream_comes_back_in_parts(sandbox, folder, sdk):
    sandbox.files.write(f"{folder}/file", BIG)
    parts = list(sandbox.files.read(f"{folder}/file", format="stream"))
    assert b"".join(parts) == BIG
    assert len(parts) > 1 or not sdk.newest  # older ones collect it first


def test_a_file_object_is_written(sandbox, folder):
    sandbox.files.write(f"{folder}/file", io.BytesIO(BIG))
    assert sandbox.files.read(f"{folder}/file", format="bytes") == BIG


def test_parts_are_written_as_they_come(sandbox, folder, sdk):
    if not hasattr(sdk._package, "WriteData"):
        pytest.skip("this version takes no iterables")

    async def later():
        for part in parts:
            yield part

    parts = (b"one ", b"two ", b"three")
    sandbox.files.write(f"{folder}/file", later() if sdk.is_async else iter(parts))
    assert sandbox.files.read(f"{folder}/file") == "one two three"


def test_an_empty_file_is_empty(sandbox, folder):
    sandbox.files.write(f"{folder}/file", "")
    assert sandbox.files.read(f"{folder}/file") == ""
    assert sandbox.files.read(f"{folder}/file", format="bytes") == b""


def test_a_write_replaces_all_of_a_file(sandbox, folder):
    sandbox.files.write(f"{folder}/file", "long long ago")
    sandbox.files.write(f"{folder}/file", "now")
    assert sandbox.files.read(f"{folder}/file") == "now"


def test_a_write_makes_the_folders_it_needs(sandbox, folder):
    sandbox.files.write(f"{folder}/one/two/file", "deep")
    assert sandbox.files.get_info(f"{folder}/one/two").mode == 0o755
    assert sandbox.files.get_info(f"{folder}/one").owner == "user"


def test_a_write_over_a_folder_is_refused(sandbox, folder, sdk):
    with pytest.raises(sdk.error("InvalidArgumentException")):
        sandbox.files.write(folder, "x")


def test_a_file_of_no_size_that_has_content_is_read(sandbox):
    assert "Linux version" in sandbox.files.read("/proc/version")


def test_reading_nothing_is_not_found(sandbox, folder, sdk):
    with pytest.raises(sdk.error("FileNotFoundException", "NotFoundException"), match="does not exist"):
        sandbox.files.read(f"{folder}/nothing")


def test_reading_a_folder_is_refused(sandbox, folder, sdk):
    with pytest.raises(sdk.error("InvalidArgumentException"), match="is a directory"):
        sandbox.files.read(folder)


def test_a_user_that_is_not_there_is_refused(sandbox, folder, sdk):
    with pytest.raises(sdk.error("AuthenticationException")):
        sandbox.files.write(f"{folder}/file", "x", user="nobody-here")


def test_a_full_disk_is_said_to_be_full(create, sdk):
    made = create()
    made.commands.run("fallocate -l 900M /home/user/most || true; fallocate -l 400M /home/user/more || true")
    made.commands.run("dd if=/dev/zero of=/home/user/rest bs=64k 2>/dev/null || true")
    with pytest.raises(sdk.error("NotEnoughSpaceException")):
        made.files.write("/home/user/file", BIG)


def test_many_files_are_written_at_once(sandbox, folder):
    files = [{"path": f"{folder}/{number}/file", "data": f"text {number}"} for number in range(10)]
    written = sandbox.files.write_files([*files, {"path": f"{folder}/raw", "data": BIG}])
    assert [each.path for each in written] == [*(file["path"] for file in files), f"{folder}/raw"]
    assert sandbox.files.read(f"{folder}/7/file") == "text 7"
    assert sandbox.files.read(f"{folder}/raw", format="bytes") == BIG


def test_no_files_are_written_at_once(sandbox):
    assert sandbox.files.write_files([]) == []


def test_a_file_is_sent_compressed(sandbox, folder):
    sandbox.files.write(f"{folder}/file", BIG, gzip=True)
    assert sandbox.files.read(f"{folder}/file", format="bytes", gzip=True) == BIG


def test_a_file_is_sent_raw(sandbox, folder):
    sandbox.files.write(f"{folder}/file", BIG, use_octet_stream=True)
    assert sandbox.files.read(f"{folder}/file", format="bytes") == BIG


def test_metadata_stays_with_a_file(sandbox, folder):
    info = sandbox.files.write(f"{folder}/file", "x", metadata={"Author": "me", "kind": "a b"})
    assert info.metadata == {"author": "me", "kind": "a b"}
    assert sandbox.files.get_info(f"{folder}/file").metadata == {"author": "me", "kind": "a b"}
    assert sandbox.files.list(folder)[0].metadata == {"author": "me", "kind": "a b"}
    moved = sandbox.files.rename(f"{folder}/file", f"{folder}/other")
    assert moved.metadata == {"author": "me", "kind": "a b"}


def test_a_write_replaces_all_metadata(sandbox, folder):
    sandbox.files.write(f"{folder}/file", "x", metadata={"one": "1", "two": "2"})
    sandbox.files.write(f"{folder}/file", "x", metadata={"two": "3"})
    assert sandbox.files.get_info(f"{folder}/file").metadata == {"two": "3"}
    sandbox.files.write(f"{folder}/file", "x")
    assert sandbox.files.get_info(f"{folder}/file").metadata is None


def test_metadata_that_does_not_fit_is_refused(sandbox, folder, sdk):
    with pytest.raises(sdk.error("InvalidArgumentException")):
        sandbox.files.write(f"{folder}/file", "x", metadata={"large": "v" * 5000})


def test_metadata_is_an_attribute_of_the_file(sandbox, folder):
    sandbox.files.write(f"{folder}/file", "x", metadata={"kind": "note"})
    script = f"import os; print(os.getxattr('{folder}/file', 'user.e2b.kind').decode())"
    assert sandbox.commands.run(f'python3 -c "{script}"').stdout == "note\n"


def fetch(url, body=None, headers=None):
    request = urllib.request.Request(url, data=body, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def form(name, content):
    head = f'--frontier\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = head.encode() + content + b"\r\n--frontier--\r\n"
    return body, {"Content-Type": "multipart/form-data; boundary=frontier"}


def test_a_link_downloads_a_file(sandbox, folder):
    sandbox.files.write(f"{folder}/a file", "by link")
    assert fetch(sandbox.download_url(f"{folder}/a file")) == (200, b"by link")


def test_a_link_downloads_as_another_user(sandbox):
    sandbox.files.write("/root/file", "of root", user="root")
    assert fetch(sandbox.download_url("file", user="root")) == (200, b"of root")


def test_a_link_uploads_a_file(sandbox, folder):
    status, answer = fetch(sandbox.upload_url(f"{folder}/file"), *form("other", b"by link"))
    assert status == 200 and json.loads(answer)[0]["path"] == f"{folder}/file"
    assert sandbox.files.read(f"{folder}/file") == "by link"


def test_a_link_works_while_it_lasts(sandbox, folder):
    sandbox.files.write(f"{folder}/file", "by link")
    assert fetch(sandbox.download_url(f"{folder}/file", use_signature_expiration=60)) == (200, b"by link")
    link = sandbox.upload_url(f"{folder}/up", use_signature_expiration=60)
    assert fetch(link, *form("x", b"up"))[0] == 200


def test_a_link_that_is_over_says_so(sandbox, folder):
    sandbox.files.write(f"{folder}/file", "by link")
    link = sandbox.download_url(f"{folder}/file", use_signature_expiration=1)
    time.sleep(2.1)  # its clock counts whole seconds
    status, answer = fetch(link)
    assert status == 401 and json.loads(answer) == {"code": 401, "message": "signature is already expired"}


def test_a_link_that_was_changed_is_refused(sandbox, folder):
    sandbox.files.write(f"{folder}/file", "by link")
    link = sandbox.download_url(f"{folder}/file").replace("%2Ffile", "%2Fother")
    status, answer = fetch(link)
    assert status == 401 and json.loads(answer)["code"] == 401


def test_a_download_link_does_not_upload(sandbox, folder):
    assert fetch(sandbox.download_url(f"{folder}/file"), *form("x", b"no"))[0] == 401
