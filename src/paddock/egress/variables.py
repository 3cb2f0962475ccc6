"""Environment variables that make common tools in a sandbox use its proxy."""

from __future__ import annotations

_DIRECT = "localhost,127.0.0.1,0.0.0.0,::1,.localhost"


def proxy_variables(port: int) -> dict[str, str]:
    """For egress mode ``proxy``, whose listener is at this port of the sandbox's loopback interface."""
    proxy = f"http://127.0.0.1:{port}"
    variables: dict[str, str] = {}
    # Both cases: curl reads http_proxy only in lower case (in CGI programs HTTP_PROXY may come from a request header),
    # Go and others check upper case first. This covers curl, wget, git, pip, uv, apt, npm, pnpm, cargo, Go, Ruby,
    # requests, httpx.
    for name, value in (("HTTP_PROXY", proxy), ("HTTPS_PROXY", proxy), ("NO_PROXY", _DIRECT)):
        variables[name] = variables[name.lower()] = value
    # Other protocols. CONNECT carries them, so that wss, ssh helpers and FTP clients work, too.
    variables["ALL_PROXY"] = variables["all_proxy"] = proxy
    # Node reads the variables above since 24 (and 22.21), but only if told to.
    variables["NODE_USE_ENV_PROXY"] = "1"
    # yarn from version 2 on reads only its own names.
    variables["YARN_HTTP_PROXY"] = variables["YARN_HTTPS_PROXY"] = proxy
    # A JVM reads none of the above. JAVA_TOOL_OPTIONS would reach all of them, but each then prints a line to stderr,
    # which breaks programs that parse it; so only the two build tools that download are configured.
    variables["MAVEN_OPTS"] = variables["GRADLE_OPTS"] = " ".join(
        f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}" for scheme in ("http", "https")
    )
    return variables
