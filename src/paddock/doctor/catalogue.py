"""The catalogue: every attempt by name, and what a success would mean. ``docs/security.md`` has the same list."""

from __future__ import annotations

from paddock.doctor.attempts import Attempt, Group
from paddock.doctor.catalogue_kernel import KERNEL
from paddock.egress.policy import EgressMode

_EVERY_WAY_OUT = (EgressMode.PROXY, EgressMode.FULL)
_FILE = ("file", "~secret")
_PROCESS = ("pid", "~secret")

FILES = Group(
    "Files of the host",
    (
        Attempt("host-file", "a file of the host is read by its path", _FILE),
        Attempt("host-file-by-parents", "a path with `..` leaves the sandbox's root", _FILE),
        Attempt("host-file-by-proc-root", "a link of /proc leads to the host's root", _FILE),
        Attempt(
            "host-file-by-handle",
            "a file of the host is opened by its inode number",
            ("handle_type", "handle", "~secret"),
        ),
        Attempt("host-file-search", "a file of the host is visible somewhere in the tree", ("file_name",)),
        Attempt("host-passwords", "password hashes of the host are read"),
        Attempt("host-credentials", "keys and credentials of the host are read"),
        Attempt("host-records", "logs and state of the host are read"),
        Attempt("host-machine-id", "the host is recognised by its machine id", ("~machine_id",)),
        Attempt("host-name", "the host's name is read", ("~host_name",)),
        Attempt("server-folder", "the server's database and keys are accessible", ("server_folder",)),
        Attempt(
            "system-write-through",
            "programs of the host are changed",
            ("mark",),
            leaves="mark",
        ),
    ),
)

PROCESSES = Group(
    "Processes of the host",
    (
        Attempt("host-process-listing", "processes of the host are seen", ("~secret",)),
        Attempt("host-process-guessing", "hidden processes are found by trying numbers", _PROCESS),
        Attempt("host-process-signal", "processes of the host are killed", _PROCESS),
        Attempt("host-process-trace", "a process of the host is taken over", _PROCESS),
        Attempt("host-process-memory", "secrets are read from the memory of the host's processes", _PROCESS),
        Attempt("host-process-environment", "secrets are read from the environment of the host's processes", _PROCESS),
        Attempt("host-process-descriptor", "an open file is taken from a process of the host", _PROCESS),
        Attempt("host-shared-memory", "shared memory of the host's programs is read", ("shared_memory",)),
        Attempt("server-environment", "the server's secrets are in every command's environment", ("~secret",)),
        Attempt("inherited-descriptors", "an open file or socket of the server is inherited"),
    ),
)

AGENT = Group(
    "The agent",
    (
        Attempt("agent-trace", "the agent is taken over with a debugger"),
        Attempt("agent-memory-file", "the agent's memory is changed through /proc"),
        Attempt("agent-memory-call", "the agent's memory is changed with a system call"),
        Attempt("agent-memory-layout", "the agent's memory addresses are read, to prepare an attack"),
        Attempt("agent-environment", "secrets of the agent's environment are read"),
        Attempt("agent-descriptors", "the agent's open files are opened again through /proc"),
        Attempt("agent-descriptor-steal", "the agent's socket is taken"),
        Attempt("agent-compare", "the agent's kernel objects are compared with one's own"),
        Attempt("agent-pages", "the agent's memory pages are moved"),
        Attempt("agent-program-write", "the program that runs in every sandbox is overwritten"),
        Attempt("agent-program-replace", "the agent's program is replaced"),
        Attempt("agent-program-through-exe", "the agent's program is overwritten while it runs, by its exe link"),
        Attempt("agent-kill", "the agent is killed or stopped from inside"),
        Attempt("agent-limits", "the agent's limits of open files, memory or processor time are lowered"),
        Attempt("agent-priority", "the agent's processor or disk priority is lowered"),
        Attempt("agent-affinity", "the agent is confined to a processor that is kept busy"),
        Attempt("agent-oom-score", "the agent is killed first when memory runs out"),
        Attempt("agent-settings", "the agent is renamed, slowed down or marked through /proc"),
        Attempt("agent-memory-advice", "the agent's memory is dropped or moved away"),
        Attempt("agent-socket", "the server's socket to the agent is reached", ("agent_socket",)),
        Attempt("agent-inner-sockets", "the server's commands are given through the socket of sudo"),
    ),
)

REACH = Group(
    "Services of the host and of the cloud",
    (
        Attempt(
            "host-loopback", "services that trust 127.0.0.1 are reached", ("port", "~secret"), modes=_EVERY_WAY_OUT
        ),
        Attempt("host-loopback-6", "services that trust ::1 are reached", ("port_6", "~secret"), modes=_EVERY_WAY_OUT),
        Attempt(
            "host-address",
            "services on an address of the host are reached",
            ("address", "address_port", "~secret"),
            modes=_EVERY_WAY_OUT,
        ),
        Attempt("host-gateway-guesses", "the host is reached as a gateway", ("port", "~secret")),
        Attempt("host-ports-listing", "the host's open ports are listed", ("port",), modes=_EVERY_WAY_OUT),
        Attempt("host-abstract-socket", "an abstract socket of the host is reached", ("abstract", "~secret")),
        Attempt("host-file-socket", "a socket file of the host is reached", ("socket", "~secret")),
        Attempt("host-runtime-sockets", "a container engine or the system bus accepts commands"),
        Attempt(
            "metadata-address", "the cloud's metadata service returns the machine's credentials", modes=_EVERY_WAY_OUT
        ),
        Attempt("proxy-to-host-loopback", "the proxy connects to 127.0.0.1", ("port", "~secret")),
        Attempt(
            "proxy-to-host-address",
            "the proxy connects to an address of the host",
            ("address", "address_port", "~secret"),
        ),
        Attempt("proxy-to-metadata", "the proxy connects to the cloud's metadata service"),
    ),
)

NEIGHBOURS = Group(
    "Other sandboxes",
    (
        Attempt("other-sandbox-file", "files of another sandbox are read", ("other_file", "~other_secret")),
        Attempt("other-sandbox-process", "processes of another sandbox are seen", ("~other_secret",)),
        Attempt("other-sandbox-port", "a port of another sandbox is reached", ("other_port", "~other_secret")),
        Attempt("other-sandbox-by-proxy", "the proxy connects to another sandbox", ("other_port", "~other_secret")),
        Attempt(
            "other-sandbox-abstract-socket",
            "an abstract socket of another sandbox is reached",
            ("other_abstract", "~other_secret"),
        ),
        Attempt("other-sandbox-shared-memory", "shared memory of another sandbox is read", ("other_shared_memory",)),
    ),
)

PRIVILEGES = Group(
    "Privileges",
    (
        Attempt("capabilities", "the sandbox's root can do what the host's root can"),
        Attempt("capability-raise", "capabilities are acquired"),
        Attempt("no-new-privileges", "a program gets more privileges than its caller"),
        Attempt("setuid-program", "a setuid program makes its caller root", ("setuid_program",), users=("user",)),
        Attempt("file-capabilities", "a program's file gives it capabilities"),
        Attempt("become-root", "an ordinary user becomes root by asking", users=("user",)),
        Attempt("users-own", "ids inside are those of the host"),
        Attempt("users-foreign-ids", "a process becomes a user of the host or of another sandbox"),
        Attempt("users-map-write", "the sandbox gives itself the host's ids"),
        Attempt("filter-active", "the system-call filter is not active"),
        Attempt("filter-suspend", "a debugger turns the filter off"),
        Attempt("filter-foreign-calls", "32-bit system calls bypass the filter"),
        Attempt("filter-changed-call", "a debugger changes a system call after the filter has checked it"),
        Attempt("core-dump", "a crash starts the host's crash handler with a crafted file"),
        Attempt("limits-raise", "limits are lifted from inside"),
        Attempt("null-page", "bugs of the kernel are given a page at address 0"),
        Attempt("executable-data", "memory protection is turned off for old programs"),
    ),
)

TERMINALS = Group(
    "Terminals",
    (
        Attempt("terminal-typing", "commands are typed into another's terminal"),
        Attempt("terminal-typing-wide", "the same, with a number that only looks different"),
        Attempt("terminal-console", "the host's console is read and pasted into"),
        Attempt("terminal-console-wide", "the same, with a number that only looks different"),
        Attempt("terminal-line-discipline", "a rarely used driver with known holes is loaded"),
        Attempt("terminal-line-discipline-gsm", "another one"),
        Attempt("terminal-hang-up", "a terminal of the host is hung up"),
        Attempt("device-controlling-terminal", "the terminal that the server was started from is reached"),
    ),
)

GROUPS: tuple[Group, ...] = (FILES, PROCESSES, AGENT, REACH, NEIGHBOURS, PRIVILEGES, TERMINALS, *KERNEL)
