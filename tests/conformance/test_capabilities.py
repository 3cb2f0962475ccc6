"""The table of providers says what their classes have."""

from __future__ import annotations

from tests.conformance import capabilities


def test_the_page_about_providers_says_what_they_have() -> None:
    said = capabilities.PAGE.read_text()
    assert said.startswith(capabilities.features()), "make it anew: python -m tests.conformance.capabilities"


def test_every_file_of_the_suite_has_its_row() -> None:
    folder = capabilities.Path(capabilities.__file__).parent
    files = {path.stem for path in folder.glob("test_*.py")} - {"test_capabilities"}
    assert files == set(capabilities.FILES)


def test_every_promise_that_a_provider_may_leave_out_is_told() -> None:
    for method in capabilities.OPTIONAL:
        assert capabilities.has(capabilities.LocalProvider, method)
