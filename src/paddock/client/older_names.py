"""What clients of older sandbox servers called some methods. New programs better use the names in ``Operations``."""

from __future__ import annotations

from paddock.client.call import Operation
from paddock.client.calls import files, processes, sandboxes


class OlderNames:
    run_cmd = Operation(processes.run_command)
    get_sandbox_status = Operation(sandboxes.get_status)
    get_sandbox_info = Operation(sandboxes.get_status)
    create_directory = Operation(files.make_directory)
    upload_file = Operation(files.upload)
    download_file = Operation(files.read_bytes)
    health_check = Operation(sandboxes.health)
