"""Every method of both clients, by name. What each takes and does is written at its function in ``calls``."""

from __future__ import annotations

from paddock.client.call import Operation, StreamOperation
from paddock.client.calls import (
    accounts,
    addons,
    code,
    files,
    mcp_servers,
    ports,
    processes,
    sandboxes,
    services,
    templates,
    terminals,
    tools,
)
from paddock.client.older_names import OlderNames
from paddock.client.terminal import TerminalOperation


class Operations(OlderNames):
    # Sandboxes

    create_sandbox = Operation(sandboxes.create_sandbox)
    connect_sandbox = Operation(sandboxes.connect_sandbox)
    schedule_timeout = Operation(sandboxes.schedule_timeout)
    pause_sandbox = Operation(sandboxes.pause_sandbox)
    resume_sandbox = Operation(sandboxes.resume_sandbox)
    delete_sandbox = Operation(sandboxes.delete_sandbox)
    get_status = Operation(sandboxes.get_status)
    list_sandboxes = Operation(sandboxes.list_sandboxes)
    expose_port = Operation(sandboxes.expose_port)
    get_port_urls = Operation(sandboxes.get_port_urls)
    get_isolation = Operation(sandboxes.get_isolation)
    get_egress = Operation(sandboxes.get_egress)
    set_egress = Operation(sandboxes.set_egress)
    events = Operation(sandboxes.events)
    stream_events = StreamOperation(sandboxes.stream_events)
    get_sandbox_usage = Operation(sandboxes.get_sandbox_usage)
    get_usage = Operation(sandboxes.get_usage)
    metrics = Operation(sandboxes.metrics)
    health = Operation(sandboxes.health)
    list_templates = Operation(templates.list_templates)

    # Commands and processes

    run_command = Operation(processes.run_command)
    stream_command = StreamOperation(processes.stream_command)
    start_process = Operation(processes.start_process)
    list_processes = Operation(processes.list_processes)
    get_process = Operation(processes.get_process)
    read_output = Operation(processes.read_output)
    write_stdin = Operation(processes.write_stdin)
    send_signal = Operation(processes.send_signal)
    wait_process = Operation(processes.wait_process)
    stream_process = StreamOperation(processes.stream_process)
    terminal = TerminalOperation(terminals.terminal)

    # Code

    run_code = Operation(code.run_code)
    stream_code = StreamOperation(code.stream_code)
    create_code_context = Operation(code.create_code_context)
    list_code_contexts = Operation(code.list_code_contexts)
    restart_code_context = Operation(code.restart_code_context)
    delete_code_context = Operation(code.delete_code_context)

    # Tools

    list_tools = Operation(tools.list_tools)
    call_tool = Operation(tools.call_tool)

    # MCP servers

    put_mcp_server = Operation(mcp_servers.put_mcp_server)
    put_mcp_servers = Operation(mcp_servers.put_mcp_servers)
    list_mcp_servers = Operation(mcp_servers.list_mcp_servers)
    get_mcp_server = Operation(mcp_servers.get_mcp_server)
    delete_mcp_server = Operation(mcp_servers.delete_mcp_server)
    delete_mcp_servers = Operation(mcp_servers.delete_mcp_servers)

    # Ports

    create_link = Operation(ports.create_link)
    create_ticket = Operation(ports.create_ticket)

    # Services

    put_service = Operation(services.put_service)
    list_services = Operation(services.list_services)
    get_service = Operation(services.get_service)
    delete_service = Operation(services.delete_service)

    # Files

    write_file = Operation(files.write_file)
    upload = Operation(files.upload)
    read_file = Operation(files.read_file)
    read_bytes = Operation(files.read_bytes)
    download = StreamOperation(files.download)
    list_files = Operation(files.list_files)
    stat_file = Operation(files.stat_file)
    move_file = Operation(files.move_file)
    make_directory = Operation(files.make_directory)
    delete_file = Operation(files.delete_file)
    watch_files = StreamOperation(files.watch_files)

    # Keys and users

    create_key = Operation(accounts.create_key)
    list_keys = Operation(accounts.list_keys)
    revoke_key = Operation(accounts.revoke_key)
    me = Operation(accounts.me)
    create_user = Operation(accounts.create_user)
    list_users = Operation(accounts.list_users)
    get_user = Operation(accounts.get_user)
    change_user = Operation(accounts.change_user)

    # Add-ons

    list_addons = Operation(addons.list_addons)
    get_addon = Operation(addons.get_addon)
    install_addon = Operation(addons.install_addon)
    stream_install_addon = StreamOperation(addons.stream_install_addon)
    remove_addon = Operation(addons.remove_addon)
