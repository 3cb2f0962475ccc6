"""Method names of clients of older sandbox servers. New programs should use the names in ``Operations``."""

from __future__ import annotations

from paddock.client.call import ApiOperation
from paddock.client.calls import files, processes, sandboxes


class OlderNames:
    run_cmd = ApiOperation(processes.run_command)
    get_sandbox_status = ApiOperation(sandboxes.get_status)
    get_sandbox_info = ApiOperation(sandboxes.get_status)
    create_directory = ApiOperation(files.make_directory)
    upload_file = ApiOperation(files.upload)
    download_file = ApiOperation(files.read_bytes)
    health_check = ApiOperation(sandboxes.health)
