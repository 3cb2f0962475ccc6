"""The system-call filter says exactly what the policy says, and the policy says what Paddock promises."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import InternalError, Unsupported
from paddock.providers.common.seccomp.compiler import assemble, compile_filter, program
from paddock.providers.common.seccomp.numbers import Architecture, numbers
from paddock.providers.common.seccomp.policy import Case, Condition, Decision, Role, parse
from tests.local.seccomp_oracle import AUDIT, ERRNO, NO_ARGUMENTS, PROMISES, TEXT, Filter, Oracle, filters

ARCHITECTURES = list(Architecture)
NEVER = """
keyctl add_key request_key mount umount2 pivot_root chroot setns unshare open_tree open_tree_attr move_mount fsopen
fsconfig fsmount fspick mount_setattr bpf perf_event_open userfaultfd open_by_handle_at name_to_handle_at fanotify_init
init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct quotactl quotactl_fd syslog
settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname iopl ioperm kcmp process_vm_writev
pidfd_getfd modify_ldt uselib vhangup move_pages migrate_pages clone3 io_uring_setup io_uring_enter io_uring_register
io_setup statmount listmount listns lsm_set_self_attr
"""


@pytest.mark.parametrize("role", ["agent", "children"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_number_answers_as_the_policy_says(architecture: Architecture, role: str) -> None:
    compiled, oracle = Filter(filters(architecture)[role]), Oracle(role)
    names = {number: name for name, number in numbers(architecture).items()}
    for number in [*range(601), 0x3FFFFFFF, 0x40000000, 0x40000000 | 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]:
        for arguments in oracle.interesting(names.get(number)):
            expected = oracle.says(names.get(number), arguments)
            assert compiled(architecture, number, arguments) == expected, (number, names.get(number), arguments)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_the_agent_may_is_more_than_what_its_processes_may(architecture: Architecture) -> None:
    agent, children = (Filter(filters(architecture)[role]) for role in ("agent", "children"))
    oracle, wider = Oracle("agent"), set()
    for name, number in numbers(architecture).items():
        for arguments in oracle.interesting(name):
            answers = agent(architecture, number, arguments), children(architecture, number, arguments)
            if answers[0] != answers[1]:
                assert answers[0] == "allow"
                wider.add(name)
    assert wider == {"setns", "unshare"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("call", "arguments", "answer"), PROMISES)
def test_the_promises_hold(architecture: Architecture, call: str, arguments: tuple[int, ...], answer: str) -> None:
    padded = (*arguments, *NO_ARGUMENTS)[:6]
    assert Filter(filters(architecture)["children"])(architecture, numbers(architecture)[call], padded) == answer


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_belongs_to_the_host_stays_refused(architecture: Architecture) -> None:
    """Named here once more, so that a line that moves in the policy is noticed."""
    compiled = Filter(filters(architecture)["children"])
    for call in NEVER.split():
        if call in numbers(architecture):
            assert compiled(architecture, numbers(architecture)[call]) in ("EPERM", "ENOSYS"), call


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_calls_of_another_architecture_kill_and_x32_calls_do_not_exist(architecture: Architecture) -> None:
    for compiled in map(Filter, filters(architecture).values()):
        for audit in (0x40000003, 0x40000028, *(set(AUDIT.values()) - {AUDIT[architecture]}), 0):
            assert compiled.run(audit, 39, NO_ARGUMENTS)[0] == "kill"
        assert all(compiled(architecture, 0x40000000 | number) == "ENOSYS" for number in range(600))


def test_x32_numbers_have_an_answer_of_their_own() -> None:
    policy = parse(TEXT.replace('x32 = "ENOSYS"', 'x32 = "kill"'))
    for architecture, answer in ((Architecture.X86_64, "kill"), (Architecture.AARCH64, "ENOSYS")):
        compiled = Filter(compile_filter(policy, architecture, Role.CHILDREN))
        assert compiled(architecture, 0x3FFFFFFF) == "ENOSYS"
        assert compiled(architecture, 0x40000000) == compiled(architecture, 0xFFFFFFFF) == answer


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_check_is_short_and_an_allowed_call_is_known_by_its_number_alone(architecture: Architecture) -> None:
    oracle = Oracle("agent")
    for compiled in map(Filter, filters(architecture).values()):
        for name, number in numbers(architecture).items():
            for arguments in oracle.interesting(name):
                _, steps, seen = compiled.run(AUDIT[architecture], number, arguments)
                if name in oracle.rules:
                    assert steps <= 45, name
                else:
                    assert steps <= 12, name
                    assert seen <= {0, 4}, name


# --- the compiler beyond our policy


@given(st.lists(st.sampled_from(["allow", "kill", *ERRNO]), min_size=1, max_size=900), st.booleans())
@settings(max_examples=30, deadline=None)
def test_any_table_compiles_to_what_it_says(answers: list[str], with_rules: bool) -> None:
    rule = Case((Condition(1, (7, 9), 0xF), Condition(2, (1,))), "EPERM") if with_rules else None
    table = [Decision(answer, (rule,) if rule and index % 5 == 0 else ()) for index, answer in enumerate(answers)]
    compiled = Filter(assemble(list(enumerate(table)), AUDIT[Architecture.X86_64], "kill"))
    for number, answer in enumerate(answers):
        assert compiled(Architecture.X86_64, number) == answer
        held = "EPERM" if table[number].cases else answer
        assert compiled(Architecture.X86_64, number, (0, 0xF9, 1, 0, 0, 0)) == held


def test_jumps_farther_than_a_byte_reach_their_aim() -> None:
    table = [Decision("allow", (Case((Condition(0, tuple(range(at, at + 3))),), "EPERM"),)) for at in range(800)]
    compiled = Filter(assemble(list(enumerate(table)), AUDIT[Architecture.AARCH64], "kill"))
    assert any(code == 0x05 and value > 255 for code, _, _, value in compiled.code)
    for number in range(800):
        for argument, answer in (
            (number - 1, "allow"),
            (number, "EPERM"),
            (number + 2, "EPERM"),
            (number + 3, "allow"),
        ):
            assert compiled(Architecture.AARCH64, number, (argument, 0, 0, 0, 0, 0)) == answer


def test_a_filter_that_the_kernel_would_not_take_is_an_error() -> None:
    table = [Decision("allow", (Case((Condition(0, (at,)),), "EPERM"),)) for at in range(2000)]
    with pytest.raises(InternalError, match="the kernel takes 4096"):
        assemble(list(enumerate(table)), AUDIT[Architecture.X86_64], "kill")
    with pytest.raises(InternalError, match="must start at 0 and rise"):
        assemble([(0, table[0]), (5, table[1]), (5, table[2])], AUDIT[Architecture.X86_64], "kill")


def test_an_architecture_without_a_filter_is_named() -> None:
    with pytest.raises(Unsupported, match="'riscv64'"):
        program("riscv64")


MISTAKES: list[tuple[str, str, str]] = [
    ("uname sysinfo", "uname sysinfos", "the group 'system facts': there is no system call 'sysinfos'"),
    ("uname sysinfo", "uname mount", "the system call 'mount' is decided a second time"),
    ("uname sysinfo", "uname ioctl", "the rule for 'ioctl'.*second time"),
    ('answer = "ENOSYS"', 'answer = "ENOSUCH"', "'ENOSUCH' is not an answer; known are allow, kill, EPERM"),
    ('is = ["AF_UNIX"]', 'is = ["AF_UNICKS"]', "'AF_UNICKS' is not among the \\[values\\]"),
    ("argument = 0", "argument = 6", "arguments 0 to 5, not 6"),
    ("is = [0]", "is = [1]", "the mask 0x7e020000 hides bits of 0x1"),
    ("is = [0]", "is = []", "must be a list that is not empty"),
    ("AF_INET6 = 10", "AF_INET6 = 0x100000000", "not a number of 32 bits"),
    ("otherwise =", "otherwize =", "a \\[\\[rule\\]\\] lacks 'otherwise'"),
    ("otherwise =", 'maybe = "allow"\notherwise =', "unknown key 'maybe'"),
    ('mask = "SOCK_TYPE"', 'maks = "SOCK_TYPE"', "a condition of the rule for 'socket' has an unknown key 'maks'"),
    ('call = "setns"', 'call = "setnss"', "the agent's 'setnss': there is no system call"),
    ("[default]", "[defaults]", "the policy lacks 'default'"),
    ("[default]", "[default", "not valid TOML"),
]


@pytest.mark.parametrize(("right", "wrong", "message"), MISTAKES)
def test_a_mistake_in_the_policy_is_named(right: str, wrong: str, message: str) -> None:
    assert right in TEXT
    with pytest.raises(InternalError, match=message):
        parse(TEXT.replace(right, wrong, 1))
