"""The native routes: parse the request, call one method, build the response."""

from paddock.api.routes import (
    accounts,
    addons,
    code,
    commands,
    confinement,
    files,
    mcp_servers,
    ports,
    processes,
    sandboxes,
    server,
    services,
    sockets,
    tools,
    watching,
)

# In matching order: fixed paths come before `/sandboxes/{sandbox_id}`.
ROUTERS = (
    server.router,
    server.templates,
    commands.router,
    code.router,
    sandboxes.router,
    files.by_body,
    sandboxes.by_path,
    processes.router,
    files.router,
    confinement.router,
    code.contexts,
    services.router,
    tools.router,
    mcp_servers.router,
    ports.router,
    watching.router,
    accounts.router,
    addons.router,
    sockets.router,
)
