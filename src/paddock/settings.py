"""Configuration, from the environment and ``.env``. Nothing else in the package reads either.

Names without a prefix are those that users of such servers know (``HOST``, ``DATABASE_URL``…); the rest begin with
``PADDOCK_``. ``docs/configuration.md`` lists them all, and a test keeps it so.
"""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from paddock.home import default_home

_NAME = re.compile(r"(\*?\.)?([a-z0-9_][a-z0-9_-]*\.)+[a-z][a-z0-9-]*(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)
_SERVICE = re.compile(r"[a-z][a-z0-9_-]*:[0-9]{1,5}", re.ASCII | re.IGNORECASE)
"""A name of a single label, as containers have: only with a port, because a single word is more often a mistake."""
_NETWORK_PORT = re.compile(r"(?P<four>[0-9./]+):[0-9]{1,5}|\[(?P<six>[0-9a-f:./]+)\](?::[0-9]{1,5})?", re.IGNORECASE)
_ORIGIN = re.compile(r"https?://(?:[a-z0-9_-]+\.)*[a-z0-9_-]+(?::[0-9]{1,5})?|https?://\[[0-9a-f:.]+\](?::[0-9]{1,5})?")
_PORT_HOST = re.compile(r"https?://[0-9]{1,5}-i[a-z0-9]{20}[.-]")
_INTERNAL_URL = re.compile(r"https?://[^/?#@\s]+/?")

_TAKEN_PORTS = {
    53: "the name server",
    3128: "the egress proxy",
    6080: "the browser's live view",
    49983: "E2B's envd",
    49999: "the code interpreter",
}
"""Of every sandbox."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_file=".env", env_file_encoding="utf-8", extra="ignore", env_ignore_empty=True)

    # Where it listens, where it keeps its state

    host: str = Field(default="127.0.0.1", validation_alias="HOST")
    """The address to listen on."""
    port: int = Field(default=8080, ge=0, le=65535, validation_alias="PORT")
    """The one port that everything is behind."""
    home: Path = Field(default_factory=default_home, validation_alias="PADDOCK_HOME")
    """State that only its owner can read: database, key file, the sandboxes of the local provider."""
    database_url: str = Field(default="", validation_alias="DATABASE_URL")
    """``postgresql://…`` for several replicas; default: SQLite in the home directory."""
    internal_url: str = Field(default="", validation_alias="PADDOCK_INTERNAL_URL")
    """Where the other servers on the same database reach this one, such as ``http://10.0.0.5:8080``: they pass requests
    for its sandboxes on to it. Default: the address that it listens on, where ``HOST`` is one that others can reach."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(default=(), validation_alias="PADDOCK_CORS_ORIGINS")
    """Origins whose pages may call the API with a key that they have, such as ``https://app.example.com``, separated by
    commas; ``*``: all. Cookies and other credentials of a browser are never accepted. Default: none."""
    domain: str = Field(default="", validation_alias="PADDOCK_DOMAIN")
    """Host names of sandbox ports end in this; default ``localhost:<port>``, which browsers resolve by themselves."""
    mcp_port: int = Field(default=6060, ge=1, le=65535, validation_alias="MCP_PORT")
    """At which port of every sandbox its tools are found over MCP."""
    vscode_port: int = Field(default=9000, ge=1, le=65535, validation_alias="VSCODE_PORT")
    """At which port of every sandbox VS Code is found."""
    public_scheme: Literal["http", "https"] = Field(default="http", validation_alias="PADDOCK_PUBLIC_SCHEME")
    """``https`` when a proxy in front of Paddock speaks TLS."""
    mcp_tools: str = Field(default="default", max_length=2000, validation_alias="PADDOCK_MCP_TOOLS")
    """Which tools MCP clients are shown whose URL does not say: ``default``, ``minimal``, ``full``, or kits and names,
    as ``files,shell``."""

    # Providers

    sandbox_provider: str = Field(default="", validation_alias="SANDBOX_PROVIDER")
    """What makes sandboxes. Unset: ``local`` where the machine can, else ``docker`` where an engine answers."""
    sandbox_providers: Annotated[tuple[str, ...], NoDecode] = Field(default=(), validation_alias="SANDBOX_PROVIDERS")
    """All that a create may choose from by ``provider``, separated by commas. Unset: only that one."""
    provider_timeout: float = Field(default=60.0, gt=0, validation_alias="PADDOCK_PROVIDER_TIMEOUT")
    """Seconds that one call to a provider may take before its outcome counts as unknown."""
    min_isolation: Literal["", "basic", "standard", "strict", "hardened"] = Field(
        default="", validation_alias="PADDOCK_MIN_ISOLATION"
    )
    """The least isolation of every sandbox; where the machine cannot give it, creates are refused. Empty: the best."""
    runsc: str = Field(default="", validation_alias="PADDOCK_RUNSC")
    """gVisor's program, for the isolation level ``hardened``. Empty: the ``runsc`` of the system."""
    runsc_platform: Literal["", "systrap", "ptrace"] = Field(default="", validation_alias="PADDOCK_RUNSC_PLATFORM")
    """How it takes over a guest's system calls. Empty: the best that this program has."""
    default_egress: Literal["none", "proxy", "full"] = Field(default="proxy", validation_alias="PADDOCK_DEFAULT_EGRESS")
    """Where a sandbox may connect to whose creator did not say."""
    egress_reachable: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), validation_alias="PADDOCK_EGRESS_REACHABLE"
    )
    """Networks of the host or its neighbourhood that sandboxes may reach all the same, and names that may lead there,
    separated by commas."""
    extra_ca: Path | None = Field(default=None, validation_alias="PADDOCK_EXTRA_CA")
    """A PEM file of certificate authorities that programs in sandboxes trust besides those of this machine."""
    pool_size: int = Field(default=2, ge=0, le=1000, validation_alias="PADDOCK_POOL_SIZE")
    """Machines of the default template and size that stand ready for a create. 0 turns the pool off."""
    pool_max: int = Field(default=16, ge=0, le=1000, validation_alias="PADDOCK_POOL_MAX")
    """The most that stand ready, of all shapes together, when there is much demand."""
    docker_host: str = Field(default="", validation_alias="DOCKER_HOST")
    """The engine of the provider ``docker``; empty: the first of the usual sockets that is there."""
    docker_tls_verify: str = Field(default="", validation_alias="DOCKER_TLS_VERIFY")
    """Not empty: the engine is spoken to by TLS, and each side shows its certificate."""
    docker_cert_path: str = Field(default="", validation_alias="DOCKER_CERT_PATH")
    """The folder of ``ca.pem``, ``cert.pem`` and ``key.pem`` for that; empty: ``~/.docker``."""
    docker_config: str = Field(default="", validation_alias="DOCKER_CONFIG")
    """The folder of Docker's ``config.json``, whose credentials pulls of images use; empty: ``~/.docker``."""
    image_layer_mb: int = Field(default=32 << 10, ge=1, validation_alias="PADDOCK_IMAGE_LAYER_MB")
    """The largest that one layer of an image may be, unpacked."""
    image_stall_timeout: float = Field(default=60.0, gt=0, validation_alias="PADDOCK_IMAGE_STALL_TIMEOUT")
    """Seconds after which a registry that sends nothing, or next to nothing, has stalled."""
    docker_way: Literal["auto", "near", "far"] = Field(default="auto", validation_alias="PADDOCK_DOCKER_WAY")
    """How agents in containers are reached: by descriptors on this machine, or through the engine alone."""
    docker_images: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("python:3.12-slim",), validation_alias="PADDOCK_DOCKER_IMAGES"
    )
    """Its templates, separated by commas; the first is its default."""
    docker_any_image: bool = Field(default=False, validation_alias="PADDOCK_DOCKER_ANY_IMAGE")
    """Whether every image that the engine has is a template, too."""
    docker_pull: bool = Field(default=False, validation_alias="PADDOCK_DOCKER_PULL")
    """Whether a listed image that the engine has not is fetched from its registry."""
    docker_runtime: str = Field(default="", validation_alias="PADDOCK_DOCKER_RUNTIME")
    """The engine's runtime for sandboxes; empty: its default."""
    docker_read_only: bool = Field(default=False, validation_alias="PADDOCK_DOCKER_READ_ONLY")
    """Whether the root of containers is read-only; ``/workspace``, ``/home``, ``/tmp`` and ``/run`` are not."""
    installation: str = Field(default="", pattern="^[A-Za-z0-9._-]{0,64}$", validation_alias="PADDOCK_INSTALLATION")
    """Whose machines those at a vendor are. Empty: made up and kept in the home directory; replicas must share one."""
    e2b_api_key: SecretStr = Field(default=SecretStr(""), validation_alias="E2B_API_KEY")
    """The key of the E2B account that the provider ``e2b`` makes machines with."""
    e2b_template_id: str = Field(default="base", min_length=1, validation_alias="E2B_TEMPLATE_ID")
    """The template at E2B of a sandbox whose creator named none."""
    e2b_timeout: int = Field(default=1800, ge=60, le=86_400, validation_alias="E2B_TIMEOUT")
    """Seconds after which E2B stops a machine that no server looks after any more. Renewed while one runs."""
    e2b_backstop: Literal["pause", "kill"] = Field(default="pause", validation_alias="PADDOCK_E2B_BACKSTOP")
    """What E2B does with such a machine."""
    e2b_api_url: str = Field(default="", validation_alias="E2B_API_URL")
    """Another service that speaks E2B's protocol; as in E2B's SDK."""
    e2b_sandbox_url: str = Field(default="", validation_alias="E2B_SANDBOX_URL")
    """Where the machines of such a service are reached; as in E2B's SDK."""
    e2b_domain: str = Field(default="", validation_alias="E2B_DOMAIN")
    """The domain of E2B, where it is not E2B's own; as in its SDK."""
    daytona_api_key: SecretStr = Field(default=SecretStr(""), validation_alias="DAYTONA_API_KEY")
    """The key of the Daytona account that the provider ``daytona`` makes machines with."""
    daytona_api_url: str = Field(default="", validation_alias="DAYTONA_API_URL")
    """Where Daytona's API is, if not at Daytona's own; as in its SDK."""
    daytona_server_url: str = Field(default="", validation_alias="DAYTONA_SERVER_URL")
    """The older name of the same."""
    daytona_target: str = Field(default="", validation_alias="DAYTONA_TARGET")
    """The region that machines are made in."""
    daytona_snapshot: str = Field(default="", validation_alias="PADDOCK_DAYTONA_SNAPSHOT")
    """The snapshot of a sandbox whose creator named no template. Empty: Daytona's default."""
    daytona_lease: int = Field(default=1800, ge=60, le=86_400, validation_alias="PADDOCK_DAYTONA_LEASE")
    """Seconds after which Daytona stops a machine that no server looks after any more. Renewed while one runs."""
    faults: Path | None = Field(default=None, validation_alias="PADDOCK_FAULTS")
    """A JSON file of faults to inject into every provider; for tests."""

    # Timeouts of sandboxes

    default_timeout: int = Field(default=3600, ge=1, validation_alias="DEFAULT_TIMEOUT")
    """Idle seconds of a sandbox whose creator named none."""
    max_timeout: int = Field(default=86_400, ge=1, validation_alias="MAX_TIMEOUT")
    """The longest idle timeout that may be asked for."""
    paused_retention: int = Field(default=7 * 86_400, ge=1, validation_alias="PADDOCK_PAUSED_RETENTION")
    """Seconds after which a paused sandbox is deleted."""
    deleted_retention: int = Field(default=30 * 86_400, ge=0, validation_alias="PADDOCK_DELETED_RETENTION")
    """Seconds for which the record of a deleted sandbox and its events are kept."""
    deleted_kept: int = Field(default=10_000, ge=0, validation_alias="PADDOCK_DELETED_KEPT")
    """Records of deleted sandboxes that are kept of each user, the latest. 0: all of them."""
    events_kept: int = Field(default=10_000, ge=0, validation_alias="PADDOCK_EVENTS_KEPT")
    """Latest events of each sandbox that are kept. 0: all of them."""
    user_events_kept: int = Field(default=500_000, ge=0, validation_alias="PADDOCK_USER_EVENTS_KEPT")
    """Events that are kept of all sandboxes of one user, deleted ones too. 0: no limit but that of each sandbox."""
    command_timeout: float = Field(default=120.0, gt=0, le=3600, validation_alias="PADDOCK_COMMAND_TIMEOUT")
    """Soft timeout of a command whose caller named none."""

    # Default resources of a sandbox

    default_cpu: float = Field(default=1.0, gt=0, validation_alias="PADDOCK_DEFAULT_CPU")
    """Cores."""
    default_memory_mb: int = Field(default=512, ge=16, validation_alias="PADDOCK_DEFAULT_MEMORY_MB")
    """Memory."""
    default_disk_mb: int = Field(default=1024, ge=16, validation_alias="PADDOCK_DEFAULT_DISK_MB")
    """Disk."""
    default_pids: int = Field(default=512, ge=4, validation_alias="PADDOCK_DEFAULT_PIDS")
    """Processes and threads."""

    # The most that one sandbox may have. 0: what its machine has, and never more than that.

    max_cpu: float = Field(default=0, ge=0, validation_alias="PADDOCK_MAX_CPU")
    """Cores."""
    max_memory_mb: int = Field(default=0, ge=0, validation_alias="PADDOCK_MAX_MEMORY_MB")
    """Memory."""
    max_disk_mb: int = Field(default=0, ge=0, validation_alias="PADDOCK_MAX_DISK_MB")
    """Disk."""
    max_pids: int = Field(default=0, ge=0, validation_alias="PADDOCK_MAX_PIDS")
    """Processes."""
    max_total_memory_mb: int = Field(default=0, ge=0, validation_alias="PADDOCK_MAX_TOTAL_MEMORY_MB")
    """Memory of all users' sandboxes together, with those that are paused and keep it. 0: no limit."""

    # Room on the host's disk

    disk_reserve_mb: int = Field(default=0, ge=0, validation_alias="PADDOCK_DISK_RESERVE_MB")
    """What stays free on the host's disk: sandboxes cannot write into it, and creates are refused (507) below it. 0: a
    twentieth of the disk, 1 GiB at most."""
    disk_overcommit: float = Field(default=20.0, ge=0, validation_alias="PADDOCK_DISK_OVERCOMMIT")
    """How many times what there is may be promised to the disks of sandboxes together. 0: any number of times."""

    # Default quotas of a member; admins have none unless set. 0 means no limit.

    quota_sandboxes: int = Field(default=1000, ge=0, validation_alias="PADDOCK_QUOTA_SANDBOXES")
    """Sandboxes of one user, paused or not."""

    quota_live: int = Field(default=100, ge=0, validation_alias="PADDOCK_QUOTA_LIVE")
    """Sandboxes of one user that are not paused."""
    quota_cpu: float = Field(default=0, ge=0, validation_alias="PADDOCK_QUOTA_CPU")
    """Cores of all of them together."""
    quota_memory_mb: int = Field(default=0, ge=0, validation_alias="PADDOCK_QUOTA_MEMORY_MB")
    """Memory of all of them together, and of those that are paused and keep it."""
    quota_processes: int = Field(default=0, ge=0, validation_alias="PADDOCK_QUOTA_PROCESSES")
    """Process limits of the same sandboxes together."""
    quota_disk_mb: int = Field(default=0, ge=0, validation_alias="PADDOCK_QUOTA_DISK_MB")
    """Disk of all sandboxes of one user, paused or not."""
    quota_mcp_servers: int = Field(default=32, ge=0, validation_alias="PADDOCK_QUOTA_MCP_SERVERS")
    """MCP servers of one sandbox, at most 32."""
    quota_streams: int = Field(default=500, ge=0, validation_alias="PADDOCK_QUOTA_STREAMS")
    """Event streams, WebSockets and terminals that one user holds open, on each server."""
    quota_bandwidth_mbit: float = Field(default=0, ge=0, validation_alias="PADDOCK_QUOTA_BANDWIDTH_MBIT")
    """Mbit/s that all sandboxes of one user send and receive together, through each server."""
    quota_requests_per_second: float = Field(default=500, ge=0, validation_alias="PADDOCK_QUOTA_RPS")
    """Requests of one user; short bursts of twice that are let through."""

    # Limits of one request

    max_json_body: int = Field(default=1 << 20, ge=1024, validation_alias="PADDOCK_MAX_JSON_BODY")
    """Bytes of a JSON body."""
    max_file_body: int = Field(default=64 << 20, ge=1024, validation_alias="PADDOCK_MAX_FILE_BODY")
    """Bytes of a JSON body that carries a file, and of a file answered as JSON. Larger ones stream."""
    max_output: int = Field(default=1 << 20, ge=1024, validation_alias="PADDOCK_MAX_OUTPUT")
    """Bytes of each output stream in one answer; the rest stays readable by offset."""
    output_spool: int = Field(default=16 << 20, ge=1 << 16, le=1 << 40, validation_alias="PADDOCK_OUTPUT_SPOOL")
    """Bytes of each output stream of a process that are kept on the sandbox's disk. When it is full the oldest go; a
    process that somebody follows waits instead."""

    max_bytes_in_flight: int = Field(default=512 << 20, ge=0, validation_alias="PADDOCK_MAX_BYTES_IN_FLIGHT")
    """Bytes of requests and answers that the server holds in memory for all its clients. 0: no limit."""
    user_bytes_in_flight: int = Field(default=256 << 20, ge=0, validation_alias="PADDOCK_USER_BYTES_IN_FLIGHT")
    """The same for one user. 0: no limit but that of all."""

    # Connections

    max_connections: int = Field(default=0, ge=0, validation_alias="PADDOCK_MAX_CONNECTIONS")
    """Connections at a time. 0: as many as the limit of open files allows, and 16,384 at most."""
    max_connections_per_address: int = Field(default=0, ge=0, validation_alias="PADDOCK_MAX_CONNECTIONS_PER_ADDRESS")
    """Connections from one address, unless it is that of a trusted proxy. 0: a quarter of all, and 512 at most."""
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("127.0.0.0/8", "::1/128"), validation_alias="PADDOCK_TRUSTED_PROXIES"
    )
    """Networks of the proxies in front of the server, separated by commas: only their ``X-Forwarded-*`` is believed."""
    head_timeout: float = Field(default=10.0, gt=0, validation_alias="PADDOCK_HEAD_TIMEOUT")
    """Seconds for the whole head of a request: from connecting on for the first, from its first byte on for others."""
    stall_timeout: float = Field(default=60.0, gt=0, validation_alias="PADDOCK_STALL_TIMEOUT")
    """Seconds after which a connection is closed whose body does not come, or whose answer is not read."""

    # The machinery

    scheduler_interval: float = Field(default=0.5, gt=0, validation_alias="PADDOCK_SCHEDULER_INTERVAL")
    """Seconds between looks for deadlines that are due."""
    reconcile_interval: float = Field(default=30.0, gt=0, validation_alias="PADDOCK_RECONCILE_INTERVAL")
    """Seconds between comparisons of the database with the providers."""
    server_ttl: float = Field(default=15.0, gt=0, validation_alias="PADDOCK_SERVER_TTL")
    """Seconds without a heartbeat after which a replica counts as dead and its unfinished work is taken over."""
    busy_wait: float = Field(default=60.0, gt=0, validation_alias="PADDOCK_BUSY_WAIT")
    """Seconds that a request waits for another operation on the same sandbox."""
    drain_timeout: float = Field(default=20.0, ge=0, validation_alias="PADDOCK_DRAIN_TIMEOUT")
    """Seconds that a stopping server gives to what it has begun."""
    loop_stall_ms: int = Field(default=100, ge=0, le=60_000, validation_alias="PADDOCK_LOOP_STALL_MS")
    """Milliseconds for which the event loop may be blocked before that is logged with its stack. 0: never logged."""
    log_format: Literal["auto", "console", "json"] = Field(default="auto", validation_alias="PADDOCK_LOG_FORMAT")
    """``auto``: for people on a terminal, JSON otherwise."""
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", validation_alias="PADDOCK_LOG_LEVEL"
    )
    """The least that is logged."""

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _networks(cls, given: Any) -> Any:
        for place in (places := _parts(given)):
            ip_network(place)
        return places

    @field_validator("egress_reachable", mode="before")
    @classmethod
    def _places(cls, given: Any) -> Any:
        for place in (places := _parts(given)):
            if _NAME.fullmatch(place) or _SERVICE.fullmatch(place):
                continue
            with_port = _NETWORK_PORT.fullmatch(place)
            try:
                ip_network(place if with_port is None else with_port["four"] or with_port["six"])
            except ValueError as error:
                raise ValueError(
                    f"{place!r} is neither a network, such as 10.1.2.0/24, nor a name, such as db.corp.example or "
                    f"registry:5000 (a single word needs a port): {error}"
                ) from None
        return places

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _origins(cls, given: Any) -> Any:
        for origin in (found := _parts(given)):
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin!r} is no origin: a scheme and a host in lower case, with a port where it is not the "
                    "scheme's own, and nothing after it, as in https://app.example.com"
                )
            if _PORT_HOST.match(origin):
                raise ValueError(f"{origin!r} is a port of a sandbox: its pages may be anybody's.")
        return found

    @field_validator("internal_url")
    @classmethod
    def _plain_address(cls, url: str) -> str:
        if url and not _INTERNAL_URL.fullmatch(url):
            raise ValueError("PADDOCK_INTERNAL_URL must be like http://10.0.0.5:8080")
        return url.rstrip("/")

    @field_validator("docker_images", "sandbox_providers", mode="before")
    @classmethod
    def _names(cls, given: Any) -> Any:
        return _parts(given)

    @field_validator("home")
    @classmethod
    def _absolute_home(cls, home: Path) -> Path:
        return home.expanduser().absolute()

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        if self.default_timeout > self.max_timeout:
            raise ValueError(f"DEFAULT_TIMEOUT ({self.default_timeout}) is above MAX_TIMEOUT ({self.max_timeout})")
        for name, port in {"MCP_PORT": self.mcp_port, "VSCODE_PORT": self.vscode_port}.items():
            if port in _TAKEN_PORTS:
                raise ValueError(
                    f"{name} ({port}) is the port of {_TAKEN_PORTS[port]} in every sandbox: choose another"
                )
        if self.mcp_port == self.vscode_port:
            raise ValueError(f"MCP_PORT and VSCODE_PORT are both {self.mcp_port}: choose another for one of them")
        for name in ("cpu", "memory_mb", "disk_mb", "pids"):
            default, most = getattr(self, f"default_{name}"), getattr(self, f"max_{name}")
            if most and default > most:
                setting = name.upper()
                raise ValueError(f"PADDOCK_DEFAULT_{setting} ({default}) is above PADDOCK_MAX_{setting} ({most})")
        if not self.database_url:
            self.database_url = f"sqlite:///{self.home / 'paddock.db'}"
        if not self.domain:
            self.domain = f"localhost:{self.port}"
        return self

    @property
    def key_file(self) -> Path:
        """The first key, where the CLI and the clients on this machine find it."""
        return self.home / "key"

    @property
    def node_url(self) -> str:
        """Where other servers reach this one; empty where nobody has said."""
        try:
            address = ip_address(self.host)
        except ValueError:
            return self.internal_url
        reachable = self.port and not (address.is_loopback or address.is_unspecified)
        host = f"[{address}]" if address.version == 6 else str(address)
        return self.internal_url or (f"http://{host}:{self.port}" if reachable else "")

    @property
    def local_url(self) -> str:
        """Where programs on this machine reach the server."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def port_url(self, key: str, port: int, path: str = "/") -> str:
        """The address of a port of the sandbox with this DNS-safe key."""
        return f"{self.public_scheme}://{port}-{key}.{self.domain}{path}"

    def program_url(self, key: str, port: int, path: str = "/") -> str:
        """The same for programs, of which few can resolve names under ``localhost`` as browsers do."""
        if self.resolves_below_domain:
            return self.port_url(key, port, path)
        return self.public_url(f"/p/{key}/{port}{path}")

    @property
    def resolves_below_domain(self) -> bool:
        """Whether names below the domain lead here for every program, not for browsers alone."""
        return self.domain.partition(":")[0] != "localhost"

    def public_url(self, path: str) -> str:
        """On the server's own host."""
        return f"{self.public_scheme}://{self.domain}{path}"


def _parts(given: Any) -> Any:
    """A list is written with commas."""
    return tuple(part.strip() for part in given.split(",") if part.strip()) if isinstance(given, str) else given
