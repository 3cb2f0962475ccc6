"""All methods of both clients, by name. Their documentation is at the functions in ``calls``."""

from __future__ import annotations

from paddock.client.call import ApiOperation, StreamOperation
from paddock.client.calls import accounts, addons, code, files, ports, processes, sandboxes, tools
from paddock.client.terminal import TerminalOperation


class OlderNames:
    """Method names of clients of older sandbox servers. New programs should use the names in ``Operations``."""

    run_cmd = ApiOperation(processes.run_command)
    get_sandbox_status = ApiOperation(sandboxes.get_status)
    get_sandbox_info = ApiOperation(sandboxes.get_status)
    create_directory = ApiOperation(files.make_directory)
    upload_file = ApiOperation(files.upload)
    download_file = ApiOperation(files.read_bytes)
    health_check = ApiOperation(sandboxes.health)


class Operations(OlderNames):
    # Sandboxes

    create_sandbox = ApiOperation(sandboxes.create_sandbox)
    connect_sandbox = ApiOperation(sandboxes.connect_sandbox)
    schedule_timeout = ApiOperation(sandboxes.schedule_timeout)
    pause_sandbox = ApiOperation(sandboxes.pause_sandbox)
    resume_sandbox = ApiOperation(sandboxes.resume_sandbox)
    delete_sandbox = ApiOperation(sandboxes.delete_sandbox)
    get_status = ApiOperation(sandboxes.get_status)
    list_sandboxes = ApiOperation(sandboxes.list_sandboxes)
    expose_port = ApiOperation(sandboxes.expose_port)
    get_port_urls = ApiOperation(sandboxes.get_port_urls)
    get_isolation = ApiOperation(sandboxes.get_isolation)
    get_egress = ApiOperation(sandboxes.get_egress)
    set_egress = ApiOperation(sandboxes.set_egress)
    events = ApiOperation(sandboxes.events)
    stream_events = StreamOperation(sandboxes.stream_events)
    get_sandbox_usage = ApiOperation(sandboxes.get_sandbox_usage)
    get_usage = ApiOperation(sandboxes.get_usage)
    metrics = ApiOperation(sandboxes.metrics)
    health = ApiOperation(sandboxes.health)
    list_templates = ApiOperation(sandboxes.list_templates)

    # Commands and processes

    run_command = ApiOperation(processes.run_command)
    stream_command = StreamOperation(processes.stream_command)
    start_process = ApiOperation(processes.start_process)
    list_processes = ApiOperation(processes.list_processes)
    get_process = ApiOperation(processes.get_process)
    read_output = ApiOperation(processes.read_output)
    write_stdin = ApiOperation(processes.write_stdin)
    send_signal = ApiOperation(processes.send_signal)
    wait_process = ApiOperation(processes.wait_process)
    stream_process = StreamOperation(processes.stream_process)
    terminal = TerminalOperation(processes.terminal)

    # Code

    run_code = ApiOperation(code.run_code)
    stream_code = StreamOperation(code.stream_code)
    create_code_context = ApiOperation(code.create_code_context)
    list_code_contexts = ApiOperation(code.list_code_contexts)
    restart_code_context = ApiOperation(code.restart_code_context)
    delete_code_context = ApiOperation(code.delete_code_context)

    # Tools

    list_tools = ApiOperation(tools.list_tools)
    call_tool = ApiOperation(tools.call_tool)

    # MCP servers

    put_mcp_server = ApiOperation(tools.put_mcp_server)
    put_mcp_servers = ApiOperation(tools.put_mcp_servers)
    list_mcp_servers = ApiOperation(tools.list_mcp_servers)
    get_mcp_server = ApiOperation(tools.get_mcp_server)
    delete_mcp_server = ApiOperation(tools.delete_mcp_server)
    delete_mcp_servers = ApiOperation(tools.delete_mcp_servers)

    # Ports

    create_link = ApiOperation(ports.create_link)
    create_ticket = ApiOperation(ports.create_ticket)

    # Services

    put_service = ApiOperation(ports.put_service)
    list_services = ApiOperation(ports.list_services)
    get_service = ApiOperation(ports.get_service)
    delete_service = ApiOperation(ports.delete_service)

    # Files

    write_file = ApiOperation(files.write_file)
    upload = ApiOperation(files.upload)
    read_file = ApiOperation(files.read_file)
    read_bytes = ApiOperation(files.read_bytes)
    download = StreamOperation(files.download)
    list_files = ApiOperation(files.list_files)
    stat_file = ApiOperation(files.stat_file)
    move_file = ApiOperation(files.move_file)
    make_directory = ApiOperation(files.make_directory)
    delete_file = ApiOperation(files.delete_file)
    watch_files = StreamOperation(files.watch_files)

    # Keys and users

    create_key = ApiOperation(accounts.create_key)
    list_keys = ApiOperation(accounts.list_keys)
    revoke_key = ApiOperation(accounts.revoke_key)
    me = ApiOperation(accounts.me)
    create_user = ApiOperation(accounts.create_user)
    list_users = ApiOperation(accounts.list_users)
    get_user = ApiOperation(accounts.get_user)
    change_user = ApiOperation(accounts.change_user)

    # Add-ons

    list_addons = ApiOperation(addons.list_addons)
    get_addon = ApiOperation(addons.get_addon)
    install_addon = ApiOperation(addons.install_addon)
    stream_install_addon = StreamOperation(addons.stream_install_addon)
    remove_addon = ApiOperation(addons.remove_addon)
