"""The environment that makes the usual tools of a sandbox use its proxy."""

from __future__ import annotations

_DIRECT = "localhost,127.0.0.1,0.0.0.0,::1,.localhost"


def proxy_variables(port: int) -> dict[str, str]:
    """For egress mode ``proxy``, whose listener is at this port of the sandbox's own loopback."""
    proxy = f"http://127.0.0.1:{port}"
    variables: dict[str, str] = {}
    # Both cases: curl reads http_proxy in lower case only (HTTP_PROXY is a header in disguise to a CGI program), Go and
    # others look at upper case first. With these: curl, wget, git, pip, uv, apt, npm, pnpm, cargo, Go,
    # Ruby, requests, httpx.
    for name, value in (("HTTP_PROXY", proxy), ("HTTPS_PROXY", proxy), ("NO_PROXY", _DIRECT)):
        variables[name] = variables[name.lower()] = value
    # What is neither http nor https. CONNECT carries it, so that wss, ssh helpers and FTP clients find a way, too.
    variables["ALL_PROXY"] = variables["all_proxy"] = proxy
    # Node has read the variables above since 24 (and 22.21), but only when told to.
    variables["NODE_USE_ENV_PROXY"] = "1"
    # yarn from version 2 on reads only its own names.
    variables["YARN_HTTP_PROXY"] = variables["YARN_HTTPS_PROXY"] = proxy
    # A JVM reads none of the above. JAVA_TOOL_OPTIONS would reach every one, but each then says so on its stderr, which
    # breaks whoever reads that; the two build tools that download are told in their own way.
    variables["MAVEN_OPTS"] = variables["GRADLE_OPTS"] = " ".join(
        f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}" for scheme in ("http", "https")
    )
    return variables
