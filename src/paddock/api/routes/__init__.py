"""The routes, thin: parse, call one method, shape the answer."""

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
    templates,
    tools,
    watching,
)

# In the order in which they are tried: fixed paths stand before `/sandboxes/{sandbox_id}`.
ROUTERS = (
    server.router,
    templates.router,
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
